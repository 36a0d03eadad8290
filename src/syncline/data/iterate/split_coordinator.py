"""The coordinator of a split: runs an execution per pass and hands its rows to the ranks.

A plain object with blocking methods, called by one thread per caller: an actor in most engines, an
object of the user's process in local mode. One more thread per pass takes blocks from the
execution. Waiting calls also check the other ranks: a rank whose process died, or that does not
join while others wait, ends the pass for all with an error that names it. Not covered: rows that
are not fetched (`shard_queues`), joins (`split_rendezvous`).
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import field

import pyarrow as pa

from syncline import settings
from syncline.core.error_frames import pack_error
from syncline.core.termination import ignore_first_sigterm
from syncline.data.columnar.schemas import Schema
from syncline.data.execute.block_store import OutputBlock
from syncline.data.execute.execution import Execution, start_execution
from syncline.data.execute.physical_plan import limits_for
from syncline.data.iterate.batch_source import PassRunner, SourceDataset
from syncline.data.iterate.cursor import Cursor, PassStart
from syncline.data.iterate.position import Restart
from syncline.data.iterate.shard_queues import ShardQueues
from syncline.data.iterate.sharding import Equal, Rounds
from syncline.data.iterate.split_rendezvous import (
    AbsentRank,
    ConsumerDiedError,
    Fetched,
    Join,
    Joined,
    PassReplacedError,
    Rejected,
    Rendezvous,
    SplitError,
)
from syncline.records import dataclass

logger = logging.getLogger("syncline")

_BUDGET_PART = 4  # part of the budget that queued rows may use; the execution has most of it


@dataclass(frozen=True, kw_only=True)
class SplitTimeouts:
    """Timeouts of a split."""

    answer_s: float = 5.0
    """Maximum duration of a call, with or without a result."""
    check_s: float = 1.0
    """Interval of the checks of other ranks. A process that is gone for so long has died; otherwise
    it may have just ended after leaving.
    """
    warn_s: float = 30.0
    """Time after which a late rank is named in a warning."""
    give_up_s: float = field(default_factory=settings.train_collective_timeout_s)
    """Time after which a late rank ends the pass."""
    silent_s: float = 60.0
    """Time without a heartbeat after which a rank on another machine counts as dead."""
    patience_s: float = 10.0
    """Time that a rank without rows waits for a rank that does not fetch its rows."""


@dataclass(kw_only=True, eq=False)
class _Pass:
    """State of one pass."""

    joins: list[Join]
    pass_start: PassStart | None = None
    queues: ShardQueues | None = None
    left: set[int] = field(default_factory=set)
    failure: bytes | None = None
    gone_since: dict[int, float] = field(default_factory=dict)
    """Ranks whose process was gone at the last check, and the time when it was first missed."""

    @property
    def is_over(self) -> bool:
        return self.failure is not None or len(self.left) == len(self.joins)

    def has(self, rank: int, token: str) -> bool:
        return self.joins[rank].token == token and rank not in self.left

    def leave(self, rank: int) -> None:
        self.left.add(rank)
        if self.queues is not None:
            self.queues.leave(rank)


class SplitCoordinator:
    """Serves the ranks of one split.

    Args:
        dataset: The dataset.
        world_size: Number of ranks.
        equal: Handling of the last rows, see `Rounds`.
        timeouts: Timeouts.
        in_process: True if all ranks are in this process, so that blocks need no object store.
        run: Starts an execution.
        clock: Seconds.
    """

    def __init__(
        self,
        dataset: SourceDataset,
        world_size: int,
        equal: Equal,
        timeouts: SplitTimeouts,
        *,
        in_process: bool = False,
        run: Callable[..., Execution] = start_execution,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dataset = dataset
        self._equal = equal
        self._timeouts = timeouts
        self._in_process = in_process
        self._pass_runner = PassRunner(dataset, run)
        self._clock = clock
        self._changed = threading.Condition()
        self._rendezvous = Rendezvous(world_size)
        self._pass: _Pass | None = None
        self._rejected: dict[str, bytes] = {}
        self._retired: set[int] = set()
        self._warned = False
        self._checked = clock()
        self._stats: object = ""
        if not in_process:
            ignore_first_sigterm()

    # -- calls of ranks

    def join(self, join: Join) -> Joined | Rejected | None:
        """Begin the next pass once all ranks have joined; None means to repeat the call."""
        with self._changed:
            deadline = self._clock() + self._timeouts.answer_s
            if not self._is_known(join):
                self._join_rendezvous(join)
            while True:
                now = self._clock()
                answer = self._answer_to(join, now, wait_for_rows=now < deadline)
                if answer is not None or now >= deadline:
                    return answer
                self._check_ranks(now)
                self._changed.wait(min(self._timeouts.check_s, deadline - now))

    def fetch(self, rank: int, token: str) -> Fetched | Rejected:
        """Return the next rows of a rank; without rows, the call is to be repeated."""
        with self._changed:
            deadline = self._clock() + self._timeouts.answer_s
            while True:
                now, current = self._clock(), self._pass
                if current is None or not current.has(rank, token):
                    return Rejected(error=pack_error(_replaced(rank)))
                self._rendezvous.mark_seen(rank, now)
                if current.failure is not None:
                    return Rejected(error=current.failure)
                assert current.queues is not None, "a rank fetches after it has joined"
                fetched = current.queues.fetch(rank, now)
                if fetched is not None and not (fetched.ended and self._rank_is_gone(current, now)):
                    self._changed.notify_all()
                    return fetched
                if now >= deadline:
                    return Fetched()
                self._check_ranks(now)
                self._changed.wait(min(self._timeouts.check_s, deadline - now))

    def recompute(self, rank: int, token: str, restart: Restart, rows: int) -> pa.Table | Rejected:
        """Return the first rows from a restart on, which were lost with a node of the cluster."""
        with self._changed:
            current = self._pass
            if current is None or not current.has(rank, token):
                return Rejected(error=pack_error(_replaced(rank)))
            assert current.pass_start is not None, "a rank has rows of passes that have begun"
            pass_start = current.pass_start
        try:
            with closing(self._pass_runner.execute(pass_start, restart)) as execution:
                return execution.first_rows(rows)
        except Exception as error:
            return Rejected(error=pack_error(error))

    def leave(self, rank: int, token: str) -> None:
        """End a rank's loop and drop the rows that it has not fetched."""
        with self._changed:
            self._rendezvous.cancel(token)
            if self._pass is not None and self._pass.has(rank, token):
                self._rendezvous.mark_seen(rank, self._clock())
                self._leave(rank)

    def retire(self, rank: int) -> None:
        """Record that a rank begins no further pass."""
        with self._changed:
            self._retired.add(rank)
            self._check_ranks(self._clock(), force=True)

    def heartbeat(self, rank: int, token: str) -> None:
        """Record a sign of life of a rank."""
        with self._changed:
            if self._pass is not None and self._pass.has(rank, token):
                self._rendezvous.mark_seen(rank, self._clock())

    def schema(self) -> Schema | None:
        """Return the schema of the dataset."""
        return self._dataset.schema()

    def stats(self) -> str:
        """Return the statistics of the last pass."""
        return str(self._stats)

    # -- joining; the caller holds the lock

    def _is_known(self, join: Join) -> bool:
        return join.token in self._rejected or (
            self._pass is not None and self._pass.has(join.rank, join.token)
        )

    def _join_rendezvous(self, join: Join) -> None:
        if self._pass is not None and join.rank not in self._pass.left:
            self._check_ranks(self._clock(), force=True)
            self._leave(join.rank)
        self._rendezvous.arrive(join, self._clock())
        joins = self._rendezvous.complete()
        if joins is not None:
            self._warned = False
            self._rejected.clear()  # all ranks have joined again
            self._pass = _Pass(joins=joins)
            threading.Thread(
                target=self._produce, args=(self._pass,), name="syncline-split", daemon=True
            ).start()

    def _answer_to(
        self, join: Join, now: float, *, wait_for_rows: bool
    ) -> Joined | Rejected | None:
        rejected = self._rejected.pop(join.token, None)
        if rejected is not None:
            return Rejected(error=rejected)
        current = self._pass
        if current is None or not current.has(join.rank, join.token):
            return None
        if current.failure is not None:
            return Rejected(error=current.failure)
        if current.pass_start is None:
            return None
        assert current.queues is not None, "a pass that has begun has queues"
        first = current.queues.fetch(join.rank, now)
        if first is None and wait_for_rows:
            return None
        self._changed.notify_all()
        if first is None or first.ended:
            first = Fetched()  # `fetch` checks the other ranks before it tells the end
        return Joined(
            pass_start=current.pass_start, needs_heartbeats=not join.process.is_local, first=first
        )

    def _leave(self, rank: int) -> None:
        assert self._pass is not None, "a rank leaves a pass"
        self._pass.leave(rank)
        if len(self._pass.left) == len(self._pass.joins):
            self._pass = None
        self._changed.notify_all()

    # -- checks of the ranks; the caller holds the lock

    def _check_ranks(self, now: float, *, force: bool = False) -> None:
        if now - self._checked < self._timeouts.check_s and not force:
            return
        self._checked = now
        if self._pass is not None and self._pass.failure is None:
            self._check_pass(self._pass, now)
        absent = self._rendezvous.absent(now)
        if absent:
            self._check_absent(absent)

    def _check_pass(self, current: _Pass, now: float) -> None:
        """Fail the pass if the process of a rank died."""
        gone = [
            rank
            for rank in range(len(current.joins))
            if rank not in current.left and self._is_gone(current.joins[rank], now)
        ]
        current.gone_since = {rank: current.gone_since.get(rank, now) for rank in gone}
        for rank, since in current.gone_since.items():
            if now - since < self._timeouts.check_s:
                continue  # the rank may have just left; its call may still arrive
            epoch = "" if current.pass_start is None else f" in epoch {current.pass_start.epoch}"
            error = ConsumerDiedError(
                f"The process of rank {rank} (pid {current.joins[rank].process.pid}) has died"
                f"{epoch}, which ends the pass for all ranks. Find out why it died, and resume all "
                "ranks from their last checkpoint."
            )
            self._fail(current, error)
            self._reject(error)  # ranks that wait for the next pass would wait forever
            return

    def _rank_is_gone(self, current: _Pass, now: float) -> bool:
        """Check the processes of all ranks before telling a rank that the pass is complete."""
        self._check_pass(current, now)
        return bool(current.gone_since)

    def _is_gone(self, join: Join, now: float) -> bool:
        if join.process.is_local:
            return not join.process.is_alive()
        return self._rendezvous.silent_s(join.rank, now) > self._timeouts.silent_s

    def _check_absent(self, absent: list[AbsentRank]) -> None:
        """Reject the waiting ranks if an absent rank cannot join, or is too late."""
        for each in absent:
            if each.rank in self._retired:
                self._reject(
                    SplitError(_does_not_join(each, "its program is done with the dataset"))
                )
                return
            if each.process is not None and each.process.is_local and not each.process.is_alive():
                self._reject(ConsumerDiedError(_does_not_join(each, "its process has ended")))
                return
            if each.silent_s > self._timeouts.give_up_s:
                reason = (
                    f"it has been silent for {each.silent_s:.0f} s "
                    "(SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S sets the limit)"
                )
                self._reject(SplitError(_does_not_join(each, reason)))
                return
        late = [each for each in absent if each.silent_s > self._timeouts.warn_s]
        if late and not self._warned:
            self._warned = True
            names = ", ".join(map(str, late))
            logger.warning(
                "The next pass over the dataset has waited for %s for %.0f s.",
                names,
                max(each.silent_s for each in late),
            )

    def _fail(self, current: _Pass, error: BaseException) -> None:
        current.failure = current.failure or pack_error(error)
        if current.queues is not None:
            for rank in current.queues.present:
                current.queues.leave(rank)
        self._changed.notify_all()

    def _reject(self, error: SplitError) -> None:
        packed = pack_error(error)
        self._rejected.update(dict.fromkeys(self._rendezvous.clear(), packed))
        self._changed.notify_all()

    # -- the thread of a pass

    def _produce(self, current: _Pass) -> None:
        execution: Execution | None = None
        try:
            pass_start, execution, first = self._begin(current)
            self._produce_rows(current, pass_start, execution, first)
        except BaseException as error:  # any error ends the pass of all ranks
            with self._changed:
                self._fail(current, error)
        finally:
            if execution is not None:
                execution.close()
                self._stats = execution.stats()

    def _begin(self, current: _Pass) -> tuple[PassStart, Execution, OutputBlock | None]:
        """Start the execution; take its first block if the chunks depend on it."""
        cursors: list[Cursor] = []
        for join in current.joins:
            cursors.extend(cursor for cursor in join.cursors if cursor not in cursors)
        chunks = [
            join.options.batch_size or _earlier_chunk(cursors, join.rank, len(current.joins))
            for join in current.joins
        ]
        rounds = Rounds(chunks=tuple(chunk or 1 for chunk in chunks), equal=self._equal)
        pass_start, execution = self._pass_runner.begin(
            cursors, rounds=rounds, options=[join.options for join in current.joins]
        )
        if None not in chunks:
            return pass_start, execution, None
        # Ranks without a batch size get as many rows per round as the first block has.
        first = self._next_block(current, execution)
        rows = max(1, first.num_rows) if first is not None else 1
        rounds = dataclasses.replace(rounds, chunks=tuple(chunk or rows for chunk in chunks))
        return dataclasses.replace(pass_start, rounds=rounds), execution, first

    def _produce_rows(
        self, current: _Pass, pass_start: PassStart, execution: Execution, block: OutputBlock | None
    ) -> None:
        limit_bytes = limits_for(self._dataset.context).budget_bytes // _BUDGET_PART
        queues = ShardQueues(
            pass_start, limit_bytes=limit_bytes, patience_s=self._timeouts.patience_s
        )
        with self._changed:
            for rank in current.left:
                queues.leave(rank)
            current.queues, current.pass_start = queues, pass_start
            self._changed.notify_all()
        block = block or self._next_block(current, execution)
        while block is not None:
            value = block.table() if self._in_process else block.reference()
            with self._changed:
                queues.add(
                    value, rows=block.num_rows, size_bytes=block.size_bytes, restart=block.restart
                )
                self._changed.notify_all()
                self._wait_for_demand(current, queues)
            block = self._next_block(current, execution)
        with self._changed:
            if not current.is_over:
                queues.end()
                self._changed.notify_all()

    def _wait_for_demand(self, current: _Pass, queues: ShardQueues) -> None:
        """Wait until a rank needs another block or the pass is over."""
        while not current.is_over:
            now = self._clock()
            if queues.needs_block(now):
                return
            self._check_ranks(now)
            self._changed.wait(self._timeouts.check_s)

    def _next_block(self, current: _Pass, execution: Execution) -> OutputBlock | None:
        """Return the next block; None at the end of the execution or of the pass."""
        while True:
            with self._changed:
                self._check_ranks(self._clock())
                if current.is_over:
                    return None
            try:
                block = execution.next(self._timeouts.check_s)
            except StopIteration:
                return None
            if block is not None:
                return block


def _earlier_chunk(cursors: list[Cursor], rank: int, world_size: int) -> int | None:
    """Return the chunk of a rank in the pass to continue, for a rank without a batch size."""
    if not cursors:
        return None
    chunks = cursors[0].rounds.chunks
    return chunks[rank] if len(chunks) == world_size else max(chunks)


def _does_not_join(absent: AbsentRank, reason: str) -> str:
    return (
        f"{absent} does not begin the next pass over the dataset, and all ranks have to: {reason}. "
        "Let every rank loop equally often over its part."
    )


def _replaced(rank: int) -> PassReplacedError:
    return PassReplacedError(
        f"Rank {rank} has begun another pass over its part of the dataset, which ended this one. "
        "Run one loop after the other, or split the dataset twice."
    )
