"""Position of a prepared loader in its epoch: the state that a checkpoint stores, and the position
to resume from, given the states of all ranks.

Pure: dicts for JSON in and out. Positions count items of the order (see `index_order`) that all
ranks together have taken, so they stay valid for another number of ranks or another batch size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from syncline.train.resume_state import ReaderState
from syncline.train.torch.index_order import Kind, Order
from syncline.train.torch.stream_parts import StreamPart, distribute, in_turn, slots

VERSION = 1


@dataclass(kw_only=True)
class Position:
    """Position of a pass, or position at which one will resume."""

    epoch: int
    """Number of the pass, from 0; -1 before the first."""
    kind: Kind
    """Kind of its order."""
    start_items: int = 0
    """Items that the ranks had taken when the pass began in this process."""
    start_batches: int = 0
    """Batches that this rank had received then."""
    batches: int = 0
    """Batches that this rank has received."""
    ended: bool = False
    """True if the pass is over and another epoch is next."""
    abandoned: bool = False
    """True if the program has left the pass before its end."""
    random: Mapping[str, Any] = field(default_factory=dict)
    """Random states at the start of the epoch on this rank; at its end only those of the program's
    generators in the loader.
    """
    slots: list[tuple[StreamPart, ...]] | None = None
    """Remaining parts of an `IterableDataset` for each loader process."""
    next_slot: int = 0
    """Loader process that makes the next batch."""

    def items(self, order: Order) -> int:
        """Return the number of items that all ranks have taken if they are where this one is."""
        return self.start_items + (self.batches - self.start_batches) * order.items_per_step

    def advance(self, worker: int, parts: tuple[StreamPart, ...]) -> None:
        """Record the parts that remain in a loader process after the batch that it made."""
        assert self.slots is not None
        self.slots[worker] = parts
        self.next_slot = (worker + 1) % len(self.slots)

    def remaining(self, workers: int, *, in_place: bool) -> list[tuple[StreamPart, ...]]:
        """Return the remaining parts for each of `workers` loader processes. The next batch comes
        from the first of them, unless `in_place` keeps the parts where they were.
        """
        assert self.slots is not None
        if in_place and len(self.slots) == max(1, workers):
            return list(self.slots)
        return slots(in_turn(self.slots, self.next_slot), workers)

    def to_dict(self, order: Order, *, rank: int, world_size: int, ended: bool) -> dict[str, Any]:
        """Return the state to save.

        As JSON it has about 14 kB in the middle of an epoch and a few hundred bytes at its end,
        plus the states of the program's generators.
        """
        return {
            "version": VERSION,
            "epoch": self.epoch,
            "ended": ended,
            "place": "1 batch" if self.batches == 1 else f"{self.batches} batches",
            "batches": self.batches,
            "items": self.items(order),
            "in_batches": order.batch_size is None,
            "order": self.kind,
            "sharing": order.ranks,
            "rank": rank,
            "world_size": world_size,
            "random": dict(self.random),
            "streams": None if ended or self.slots is None else self._saved_slots(),
        }

    def _saved_slots(self) -> dict[str, Any]:
        assert self.slots is not None
        return {
            "next": self.next_slot,
            "slots": [[part.to_dict() for part in slot] for slot in self.slots],
        }


def resume_position(
    states: Sequence[ReaderState], order: Order, *, rank: int, world_size: int
) -> tuple[Position, str]:
    """Return the position where this rank resumes, and a warning if the ranks were elsewhere; ""
    otherwise.

    Args:
        states: States that the ranks saved, in rank order; empty for ranks without a state. Only
            this rank's state if the number of ranks is the same.
        order: Order of this rank's loader.
        rank: This rank.
        world_size: Number of ranks.

    Raises:
        ValueError: The states have another version.
    """
    for state in states:
        if state.get("version", VERSION) != VERSION:
            raise ValueError(
                f"the position of a data loader was saved in version {state['version']!r}, but "
                f"this syncline reads version {VERSION}: use the syncline that saved it, or "
                "restart the epoch with `DataConfig(resume=False)`."
            )
    known = [state for state in states if state]
    mine = next(
        (state for state in known if (state["rank"], state["world_size"]) == (rank, world_size)),
        None,
    )
    warning = ""
    if mine is not None:
        state = mine
    elif known[0]["sharing"] == 1 and order.stream != "split":  # each rank had its own order
        state = states[rank % len(states)] or known[0]
    else:
        state, warning = _earliest(states)
    if not state:
        return Position(epoch=-1, kind=order.kind, ended=True), warning
    obstacle = "" if state["ended"] else _obstacle(state, order, world_size)
    if obstacle:
        return Position(epoch=state["epoch"] - 1, kind=order.kind, ended=True), (
            f"epoch {state['epoch']} cannot be resumed after its {state['place']}, because "
            f"{obstacle}. The epoch restarts, and these batches are read again"
        )
    position = Position(
        epoch=state["epoch"],
        kind=state["order"],
        start_items=state["items"],
        start_batches=state["batches"],
        batches=state["batches"],
        ended=state["ended"],
        random=state["random"],
        slots=None,
    )
    if state["streams"] is not None and not state["ended"]:
        if mine is None and order.stream == "split":
            _take_share(position, states, rank, world_size)
        else:
            position.slots, position.next_slot = _saved_slots(state)
    return position, warning


def _saved_slots(state: ReaderState) -> tuple[list[tuple[StreamPart, ...]], int]:
    saved = state["streams"]
    return [tuple(map(StreamPart.from_dict, slot)) for slot in saved["slots"]], saved["next"]


def _take_share(
    position: Position, states: Sequence[ReaderState], rank: int, world_size: int
) -> None:
    """Set the parts of this rank among the remaining parts of all ranks."""
    found = [
        _saved_slots(state)
        for state in states
        if state and state["epoch"] == position.epoch and state["streams"] is not None
    ]
    parts = [list(in_turn(*each)) for each in found]
    # The ranks in turn, as they took their batches.
    of_all = [each[n] for n in range(max(map(len, parts))) for each in parts if n < len(each)]
    position.slots = [(part,) for part in distribute(of_all, world_size)[rank]]


def _earliest(states: Sequence[ReaderState]) -> tuple[ReaderState, str]:
    """Return the state with the least progress, and a warning if the states differ."""
    ordered = sorted(states, key=_progress)
    first, last = ordered[0], ordered[-1]
    if _progress(first) == _progress(last):
        return first, ""
    return first, (
        "the ranks were at different positions at the checkpoint, and the number of ranks has "
        f"changed. All resume at the earliest position ({_text(first)}; the latest was "
        f"{_text(last)}), so some samples are read again"
    )


def _progress(state: ReaderState) -> tuple[int, int]:
    if not state:
        return 0, 0
    return (state["epoch"] + 1, 0) if state["ended"] else (state["epoch"], state["items"])


def _text(state: ReaderState) -> str:
    if not state:
        return "the beginning"
    if state["ended"]:
        return f"the end of epoch {state['epoch']}"
    return f"epoch {state['epoch']}, {state['place']}"


def _obstacle(state: ReaderState, order: Order, world_size: int) -> str:
    """Return the reason why a pass cannot be resumed in this order; "" if it can."""
    kind: Kind = state["order"]
    if {kind, order.kind} <= {"own", "shared"}:
        if state["in_batches"] != (order.batch_size is None):
            return "its batches were made by another kind of batch sampler"
        return ""
    if kind != order.kind:
        return f"its order was of another kind ({kind}, now {order.kind})"
    if kind == "foreign" and state["sharing"] != order.ranks:
        return (
            f"its sampler shards samples itself, then over {state['sharing']} ranks and now over "
            f"{order.ranks}"
        )
    if kind == "stream" and order.stream == "fixed" and state["world_size"] != world_size:
        return (
            f"its IterableDataset shards samples itself, then over {state['world_size']} ranks and "
            f"now over {world_size}"
        )
    return ""
