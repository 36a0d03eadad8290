"""The rows of one pass of a split between dealing and fetching: a hand for each rank, without
threads or I/O.

Blocks are counted while a hand has rows of them, and let go with the last. Rows of ranks that have
left are dropped as they are dealt. `wants` says when to get the next block: whenever a rank has
little in its hand, unless others that do not fetch hold too much memory.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from syncline.data.iterate.cursor import Beginning
from syncline.data.iterate.position import Restart
from syncline.data.iterate.sharding import Deal, Dealer
from syncline.data.iterate.split_rendezvous import Fetched, Share

# What is ready for one rank before the next block is asked for; the executor has more of them
# ready.
_READY_BYTES = 8 * 1024 * 1024
# One answer carries no more than this, so that the blocks that consumers hold stay few.
_FETCH_BYTES = 32 * 1024 * 1024
_FETCH_SHARES = 256


@dataclass(kw_only=True)
class _Held:
    """A block that rows are still needed of."""

    value: Any
    rows: int
    size_bytes: int
    uses: int = 0


@dataclass(kw_only=True)
class _Hand:
    """What one rank has not fetched."""

    deals: deque[tuple[Deal, int | None]] = field(default_factory=deque)
    size_bytes: float = 0.0
    starving_since: float | None = None


@dataclass(frozen=True, kw_only=True)
class HandsStatistics:
    """What `Hands` holds."""

    blocks: int
    held_bytes: int
    waiting_shares: tuple[int, ...]
    """For each rank, shares that it has not fetched."""
    dropped_rows: int
    padded_rows: int


class Hands:
    """The hands of all ranks.

    Args:
        beginning: What is dealt, and how. limit_bytes: Bytes of blocks above which a rank without
        rows waits for those that have some. patience_s: How long it waits: ranks that have stopped
        reading must not stop the others for ever.
    """

    def __init__(self, beginning: Beginning, *, limit_bytes: int, patience_s: float) -> None:
        self._dealer = Dealer(
            rounds=beginning.rounds, position=beginning.position, skip=beginning.settled
        )
        self._hands: list[_Hand | None] = [_Hand() for _ in beginning.rounds.chunks]
        self._blocks: dict[int, _Held] = {}
        self._added = 0
        self._ended = False
        self._limit_bytes = limit_bytes
        self._patience_s = patience_s
        self._total = beginning.total
        self.held_bytes = 0
        """Bytes of the blocks that are held."""

    @property
    def present(self) -> list[int]:
        """The ranks that have not left."""
        return [rank for rank, hand in enumerate(self._hands) if hand is not None]

    def add(self, value: Any, *, rows: int, size_bytes: int, restart: Restart) -> None:
        """Deal the next block of the sequence."""
        number = self._added
        self._added += 1
        self._blocks[number] = _Held(value=value, rows=rows, size_bytes=size_bytes)
        self.held_bytes += size_bytes
        self._deal(self._dealer.add(number, rows, restart), None)

    def end(self) -> None:
        """The sequence has ended."""
        deals = self._dealer.end()
        self._ended, self._total = True, self._dealer.total
        self._deal(deals, self._total)

    def fetch(self, rank: int, now: float) -> Fetched | None:
        """What a rank gets next; None where there is nothing yet. The end comes alone, after all
        rows.
        """
        hand = self._hands[rank]
        assert hand is not None, f"rank {rank} has left"
        shares: list[Share] = []
        size_bytes, last = 0, None
        while hand.deals and len(shares) < _FETCH_SHARES:
            deal, total = hand.deals[0]
            held = self._blocks[deal.block]  # type: ignore[index]
            if deal.block != last:
                size_bytes, last = size_bytes + held.size_bytes, deal.block
                if shares and size_bytes > _FETCH_BYTES:
                    break
            hand.deals.popleft()
            hand.size_bytes -= _part_bytes(held, deal)
            shares.append(Share(held.value, deal.start, deal.stop, deal.restart, total))
            self._release(deal)
        if shares:
            hand.starving_since = None
            return Fetched(shares=tuple(shares))
        if self._ended:
            return Fetched(
                ended=True, total=self._total, dropped_rows=self._dealer.statistics().dropped_rows
            )
        hand.starving_since = now if hand.starving_since is None else hand.starving_since
        return None

    def leave(self, rank: int) -> None:
        """A rank wants nothing more."""
        hand, self._hands[rank] = self._hands[rank], None
        for deal, _ in hand.deals if hand else ():
            self._release(deal)

    def wants(self, now: float) -> bool:
        """Whether the next block should be added now."""
        hands = [hand for hand in self._hands if hand is not None]
        if not any(hand.size_bytes < _READY_BYTES for hand in hands):
            return False
        if self.held_bytes < self._limit_bytes:
            return True
        starving = [
            hand.starving_since
            for hand in hands
            if not hand.deals and hand.starving_since is not None
        ]
        # Where nobody has rows, it is a round that is larger than the limit: it can only be dealt
        # when it is complete.
        return bool(starving) and (
            not any(hand.deals for hand in hands) or now - min(starving) > self._patience_s
        )

    def statistics(self) -> HandsStatistics:
        """What is held now."""
        dealt = self._dealer.statistics()
        return HandsStatistics(
            blocks=len(self._blocks),
            held_bytes=self.held_bytes,
            waiting_shares=tuple(0 if hand is None else len(hand.deals) for hand in self._hands),
            dropped_rows=dealt.dropped_rows,
            padded_rows=dealt.padded_rows,
        )

    def _deal(self, deals: list[Deal], total: int | None) -> None:
        for deal in deals:
            hand = self._hands[deal.rank]
            if hand is not None:
                held = self._blocks[deal.block]  # type: ignore[index]
                held.uses += 1
                hand.deals.append((deal, total))
                hand.size_bytes += _part_bytes(held, deal)
                hand.starving_since = None
        needed = self._dealer.held
        for number in [
            number
            for number, held in self._blocks.items()
            if not held.uses and number not in needed
        ]:
            self._drop(number)

    def _release(self, deal: Deal) -> None:
        held = self._blocks[deal.block]  # type: ignore[index]
        held.uses -= 1
        if not held.uses and deal.block not in self._dealer.held:
            self._drop(deal.block)  # type: ignore[arg-type]

    def _drop(self, number: int) -> None:
        self.held_bytes -= self._blocks.pop(number).size_bytes


def _part_bytes(held: _Held, deal: Deal) -> float:
    return held.size_bytes * (deal.stop - deal.start) / max(held.rows, 1)
