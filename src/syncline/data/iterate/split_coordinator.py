"""The coordinator of a split: runs an execution for each pass and deals its rows to the ranks that
fetch them.

A plain object whose methods wait, for one thread per caller: an actor of its own in most engines,
an object of the program's in local mode. One more thread per pass takes blocks from the execution.
What waits here also looks after the others: a rank whose process has died, or that does not come to
a pass while others wait, ends the pass for all with an error that names it. Not covered: what ranks
hold (`queues`), who has come (`rendezvous`).
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from syncline import settings
from syncline.core.error_frames import pack_error
from syncline.core.termination import ignore_first_sigterm
from syncline.data.execute.execution import start_execution
from syncline.data.execute.physical_plan import limits_for
from syncline.data.iterate.batch_source import PassRunner
from syncline.data.iterate.cursor import Cursor, PassStart
from syncline.data.iterate.position import Restart
from syncline.data.iterate.shard_queues import ShardQueues, ShardQueueStatistics
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

if TYPE_CHECKING:
    import pyarrow as pa

    from syncline.data.dataset import Dataset
    from syncline.data.execute.execution import Execution, OutputBlock

logger = logging.getLogger("syncline")


_BUDGET_PART = 4  # the hands may hold this part of the budget: the executor has most of it


@dataclass(frozen=True, kw_only=True)
class SplitTimeouts:
    """How long what is waited for."""

    answer_s: float = 5.0
    """A call is answered after so long, with or without what was asked for."""
    check_s: float = 1.0
    """Time between two looks at the other ranks; a process that is gone for so long has died, and
    not just ended after its last word.
    """
    warn_s: float = 30.0
    """A rank that keeps others waiting is named in a warning."""
    give_up_s: float = field(default_factory=settings.train_collective_timeout_s)
    """A rank that keeps others waiting ends the pass."""
    silent_s: float = 60.0
    """A rank on another machine that says nothing for so long during a pass is dead."""
    patience_s: float = 10.0
    """How long a rank without rows waits for one that holds many and fetches none."""


@dataclass(kw_only=True, eq=False)
class _Pass:
    """One epoch."""

    joins: list[Join]
    pass_start: PassStart | None = None
    queues: ShardQueues | None = None
    left: set[int] = field(default_factory=set)
    failure: bytes | None = None
    gone_since: dict[int, float] = field(default_factory=dict)
    """Ranks whose process was gone at the last look, and when that was first seen."""

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
        dataset: What is read.
        world_size: Number of ranks.
        equal: What becomes of the last rows: see `iterate.dealing`.
        limits: Time limits.
        in_process: Whether all ranks are in this process: blocks need not go through the object
            store then.
        run: Starts executions.
        clock: Seconds.
    """

    def __init__(
        self,
        dataset: Dataset,
        world_size: int,
        equal: Equal,
        limits: SplitTimeouts,
        *,
        in_process: bool = False,
        run: Callable[..., Execution] = start_execution,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dataset = dataset
        self._equal = equal
        self._limits = limits
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

    # -- what ranks call

    def join(self, join: Join) -> Joined | Rejected | None:
        """Begin the next pass once all ranks want to; None: not yet, ask again."""
        with self._changed:
            deadline = self._clock() + self._limits.answer_s
            if not self._is_known(join):
                self._join_rendezvous(join)
            while True:
                answer = self._answer_to(join)
                now = self._clock()
                if answer is not None or now >= deadline:
                    return answer
                self._check_ranks(now)
                self._changed.wait(min(self._limits.check_s, deadline - now))

    def fetch(self, rank: int, token: str) -> Fetched | Rejected:
        """The next rows of a rank; without rows: not yet, ask again."""
        with self._changed:
            deadline = self._clock() + self._limits.answer_s
            while True:
                now, current = self._clock(), self._pass
                if current is None or not current.has(rank, token):
                    return Rejected(error=pack_error(_replaced(rank)))
                self._rendezvous.mark_seen(rank, now)
                if current.failure is not None:
                    return Rejected(error=current.failure)
                assert current.queues is not None, "a rank fetches after it has joined"
                fetched = current.queues.fetch(rank, now)
                if fetched is not None and not (
                    fetched.ended and self._rank_is_gone(current, now)
                ):
                    self._changed.notify_all()
                    return fetched
                if now >= deadline:
                    return Fetched()
                self._check_ranks(now)
                self._changed.wait(min(self._limits.check_s, deadline - now))

    def recompute(self, rank: int, token: str, restart: Restart, rows: int) -> pa.Table | Rejected:
        """The first rows from a restart point on: a rank has them, but a node of the cluster was
        lost, and their block with it.
        """
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
        """A rank's loop is over: what it has not fetched is dropped."""
        with self._changed:
            self._rendezvous.cancel(token)
            if self._pass is not None and self._pass.has(rank, token):
                self._rendezvous.mark_seen(rank, self._clock())
                self._leave(rank)

    def retire(self, rank: int) -> None:
        """A rank begins no pass any more."""
        with self._changed:
            self._retired.add(rank)
            self._check_ranks(self._clock(), at_once=True)

    def heartbeat(self, rank: int, token: str) -> None:
        """A rank lives."""
        with self._changed:
            if self._pass is not None and self._pass.has(rank, token):
                self._rendezvous.mark_seen(rank, self._clock())

    def schema(self) -> Any:
        """The dataset's."""
        return self._dataset.schema()

    def stats(self) -> str:
        """Where the time of the last pass went."""
        return str(self._stats)

    def statistics(self) -> ShardQueueStatistics | None:
        """What the hands of the current pass hold; None between passes."""
        with self._changed:
            return (
                None
                if self._pass is None or self._pass.queues is None
                else self._pass.queues.statistics()
            )

    # -- coming together; the lock is held

    def _is_known(self, join: Join) -> bool:
        return join.token in self._rejected or (
            self._pass is not None and self._pass.has(join.rank, join.token)
        )

    def _join_rendezvous(self, join: Join) -> None:
        if self._pass is not None and join.rank not in self._pass.left:
            self._check_ranks(self._clock(), at_once=True)
            self._leave(join.rank)
        self._rendezvous.arrive(join, self._clock())
        joins = self._rendezvous.complete()
        if joins is not None:
            self._warned = False
            self._rejected.clear()  # all ranks have come anew: nobody asks for those any more
            self._pass = _Pass(joins=joins)
            threading.Thread(
                target=self._produce, args=(self._pass,), name="syncline-split", daemon=True
            ).start()

    def _answer_to(self, join: Join) -> Joined | Rejected | None:
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
        return Joined(pass_start=current.pass_start, needs_heartbeats=not join.process.is_local)

    def _leave(self, rank: int) -> None:
        assert self._pass is not None, "a rank leaves a pass"
        self._pass.leave(rank)
        if len(self._pass.left) == len(self._pass.joins):
            self._pass = None
        self._changed.notify_all()

    # -- looking after one another; the lock is held

    def _check_ranks(self, now: float, *, at_once: bool = False) -> None:
        if now - self._checked < self._limits.check_s and not at_once:
            return
        self._checked = now
        if self._pass is not None and self._pass.failure is None:
            self._check_pass(self._pass, now)
        absent = self._rendezvous.absent(now)
        if absent:
            self._check_absent(absent)

    def _check_pass(self, current: _Pass, now: float) -> None:
        """Fail the pass if a rank in it has died."""
        gone = [
            rank
            for rank in range(len(current.joins))
            if rank not in current.left and self._is_gone(current.joins[rank], now)
        ]
        current.gone_since = {rank: current.gone_since.get(rank, now) for rank in gone}
        for rank, since in current.gone_since.items():
            if now - since < self._limits.check_s:
                continue  # a rank that has just left and ended may be gone before its word has come
            epoch = "" if current.pass_start is None else f" in epoch {current.pass_start.epoch}"
            error = ConsumerDiedError(
                f"the process of rank {rank} (pid {current.joins[rank].process.pid}) has died{epoch}, so nobody reads its part of the "
                "dataset any more and the pass ends for all ranks: see what ended it, and continue all ranks from their last checkpoint"
            )
            self._fail(current, error)
            self._reject(error)  # those who wait for the next pass would wait for it in vain
            return

    def _rank_is_gone(self, current: _Pass, now: float) -> bool:
        """Whether a rank's process is gone, before another rank is told that all went well."""
        self._check_pass(current, now)
        return bool(current.gone_since)

    def _is_gone(self, join: Join, now: float) -> bool:
        if join.process.is_local:
            return not join.process.is_alive()
        return self._rendezvous.silent_s(join.rank, now) > self._limits.silent_s

    def _check_absent(self, absent: list[AbsentRank]) -> None:
        """Refuse those who wait if a rank they wait for cannot come any more, or has not come for
        too long.
        """
        for each in absent:
            if each.rank in self._retired:
                self._reject(
                    SplitError(_does_not_come(each, "its program is done with the dataset"))
                )
                return
            if each.process is not None and each.process.is_local and not each.process.is_alive():
                self._reject(ConsumerDiedError(_does_not_come(each, "its process has ended")))
                return
            if each.silent_s > self._limits.give_up_s:
                reason = f"nothing was heard of it for {each.silent_s:.0f} s (SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S sets the limit)"
                self._reject(SplitError(_does_not_come(each, reason)))
                return
        late = [each for each in absent if each.silent_s > self._limits.warn_s]
        if late and not self._warned:
            self._warned = True
            names = ", ".join(map(str, late))
            logger.warning(
                "the next pass over the dataset waits for %s, for %.0f s now",
                names,
                max(each.silent_s for each in late),
            )

    def _fail(self, current: _Pass, error: BaseException) -> None:
        current.failure = current.failure or pack_error(error)
        if current.queues is not None:
            for rank in current.queues.present:  # nobody fetches any more
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
            self._shard(current, pass_start, execution, first)
        except BaseException as error:  # whatever it is, it belongs to the ranks
            with self._changed:
                self._fail(current, error)
        finally:
            if execution is not None:
                execution.close()
                self._stats = execution.stats()

    def _begin(self, current: _Pass) -> tuple[PassStart, Execution, OutputBlock | None]:
        """Where the pass begins, its execution, and the first block if it was needed to know the
        chunks.
        """
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
        # Ranks that take blocks as they come get as many rows in turn as the first block has.
        first = self._next_block(current, execution)
        rows = max(1, first.num_rows) if first is not None else 1
        rounds = dataclasses.replace(rounds, chunks=tuple(chunk or rows for chunk in chunks))
        return dataclasses.replace(pass_start, rounds=rounds), execution, first

    def _shard(
        self, current: _Pass, pass_start: PassStart, execution: Execution, block: OutputBlock | None
    ) -> None:
        limit_bytes = limits_for(self._dataset.context).budget_bytes // _BUDGET_PART
        queues = ShardQueues(pass_start, limit_bytes=limit_bytes, patience_s=self._limits.patience_s)
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
                self._wait_for_want(current, queues)
            block = self._next_block(current, execution)
        with self._changed:
            if not current.is_over:
                queues.end()
                self._changed.notify_all()

    def _wait_for_want(self, current: _Pass, queues: ShardQueues) -> None:
        """Until a rank needs another block, or none ever will."""
        while not current.is_over:
            now = self._clock()
            if queues.wants(now):
                return
            self._check_ranks(now)
            self._changed.wait(self._limits.check_s)

    def _next_block(self, current: _Pass, execution: Execution) -> OutputBlock | None:
        """The next block; None at the end, and when nobody wants one any more."""
        while True:
            with self._changed:
                self._check_ranks(self._clock())
                if current.is_over:
                    return None
            try:
                block = execution.next(self._limits.check_s)
            except StopIteration:
                return None
            if block is not None:
                return block


def _earlier_chunk(cursors: list[Cursor], rank: int, world_size: int) -> int | None:
    """Rows that a rank took in turn before, for one that takes blocks as they come."""
    if not cursors:
        return None
    chunks = cursors[0].rounds.chunks
    return chunks[rank] if len(chunks) == world_size else max(chunks)


def _does_not_come(absent: AbsentRank, reason: str) -> str:
    return (
        f"{absent} does not begin the next pass over the dataset, and all ranks have to: {reason}. "
        "Let every rank loop equally often over its part."
    )


def _replaced(rank: int) -> PassReplacedError:
    return PassReplacedError(
        f"rank {rank} has begun another pass over its part of the dataset, which ended this one: go through one loop after the other, "
        "or split the dataset twice"
    )
