"""The scheduler of an execution: a pure state machine from events to instructions. No clock, I/O or
threads.

Covered: order, memory budget, CPU slots, priorities, failures, restart points. Not covered: how
blocks become tasks (`operators`) and carrying out the instructions (`driver`).

**Budget.** The bytes of the existing blocks plus the expected size of the next block of every
running task stay within the budget: a task starts or resumes only if its next block fits. A stage
may use only its share of the budget (`_share`), which leaves room for the stages after it. Blocks
that a stage collects, and partitioned blocks, do not count (see `BlockTracker`).

**Progress.** If nothing runs, nothing fits, and the consumer has taken everything, the stage that
the consumer waits for produces one more block, beyond the budget and if necessary without a free
slot. An execution therefore never deadlocks on memory. It exceeds its budget at most by that block,
by the amount that blocks are larger than expected, and by the input of a single task.

**Priority.** Stages on the branch that is needed now come first, then those nearest to the
consumer, then those with the fewest running tasks. Within a stage, waiting tasks are resumed before
new ones start, in the order of their numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from syncline.core.state_machine import Dispatcher, Lifecycle, StateEnum, TransitionTable, on
from syncline.data.execute.messages import (
    Abandoned,
    Cancel,
    Deliver,
    Drop,
    Ended,
    Event,
    Fail,
    Failed,
    Finish,
    Instruction,
    Partitioned,
    Prepared,
    Produced,
    Started,
    Taken,
    TaskId,
)
from syncline.data.execute.operators import operators_for
from syncline.data.execute.operators.base import Action, AnyOperator, BlockTracker, Part, Task
from syncline.data.execute.operators.exchange import ExchangeOperator
from syncline.data.execute.operators.task_operator import TaskOperator
from syncline.data.execute.physical_plan import Stage
from syncline.data.iterate.position import RestartPoint
from syncline.records import dataclass

# Share of the budget for stages without inputs. Later stages may use more, the last one all of it.
_FIRST_SHARE = 0.5
# Part of its share that a stage may use for blocks that are not the next of its output, or that
# belong to a branch that is not needed now.
_AHEAD_SHARE = 0.75
# Number of blocks per slot that fit into the budget; gives the expected block size of a stage
# without blocks so far. Matches `ExecutionLimits.block_bytes`.
_BLOCKS_IN_BUDGET_PER_SLOT = 4
# Slots are fractions, and their sums have rounding errors.
_SLOT_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class StageCounts:
    """Statistics of a stage."""

    queued_rows: int
    """Input rows without a task so far."""
    held_bytes: int
    """Bytes of the existing blocks that the stage produced, wherever they are."""
    running: int
    """Running tasks."""
    waiting: int
    """Tasks that wait to be resumed."""
    total: int | None
    """All tasks; None if unknown or for a stage without tasks."""
    output_blocks: int
    """Blocks produced or passed on."""
    output_rows: int
    output_bytes: int
    ended: bool
    """True if the stage has passed on everything or was abandoned."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Statistics of a scheduler."""

    stages: tuple[StageCounts, ...]
    slots: float
    used_slots: float
    budget_bytes: int
    held_bytes: int
    """Bytes of the blocks that count against the budget."""
    expected_bytes: int
    """Expected bytes of the next blocks of running tasks."""
    delivered_blocks: int
    """Delivered blocks that the consumer has not taken."""
    errored_tasks: int
    """Failed tasks excused by `max_errored_blocks`."""


class OutputBuffer:
    """Delivered parts that the consumer has not taken; the receiver of the last operator."""

    def __init__(self, tracker: BlockTracker, *, has_points: bool) -> None:
        self._tracker = tracker
        self._has_points = has_points
        self._waiting: deque[Part] = deque()
        self.ended = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, port: int, part: Part) -> None:
        """Deliver a part."""
        self._waiting.append(part)
        point = part.point if self._has_points else None
        self._tracker.instructions.append(
            Deliver(piece=part.piece, size_bytes=part.size_bytes, point=point)
        )

    def end(self, port: int) -> None:
        """End the output."""
        self.ended = True

    def taken(self) -> None:
        """Release the oldest part, which the consumer took."""
        self._tracker.release(self._waiting.popleft().block)


def point_after(
    stages: Sequence[Stage], point: RestartPoint, rows: int, *, at_end: bool
) -> RestartPoint:
    """Return the restart point `rows` rows after the restart point of a delivered piece.

    With `at_end`, the rows are the whole piece and the result refers to the next piece.
    """
    return operators_for(stages, BlockTracker(len(stages)), preserve_order=True)[-1].advance(
        point, rows, at_end=at_end
    )


class ExecutionState(StateEnum):
    """State of an execution."""

    CREATED = "created"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


TRANSITIONS: TransitionTable[ExecutionState] = {
    ExecutionState.CREATED: frozenset(
        {ExecutionState.RUNNING, ExecutionState.FINISHED, ExecutionState.FAILED}
    ),
    ExecutionState.RUNNING: frozenset({ExecutionState.FINISHED, ExecutionState.FAILED}),
    ExecutionState.FINISHED: frozenset(),
    ExecutionState.FAILED: frozenset(),
}


class Scheduler(Dispatcher[Event, None], handles=Event):
    """State machine that decides what an execution does next. Not thread-safe.

    Args:
        stages: Stages, inputs before their readers. Each stage except the last has one reader.
        preserve_order: Deliver the output in its fixed order, with restart points. Otherwise
            blocks are delivered as they are produced, without restart points.
        max_errored_blocks: Number of failed tasks to excuse; negative for no limit.
        start: Restart point to begin from; None for the beginning.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        preserve_order: bool,
        max_errored_blocks: int,
        start: RestartPoint = None,
    ) -> None:
        if start is not None and not preserve_order:
            raise ValueError(
                "An execution can only start at a restart point if the order of its output is "
                "fixed. Set preserve_order=True, or start=None."
            )
        self._max_errored = max_errored_blocks
        self._tracker = BlockTracker(len(stages))
        self._operators = operators_for(stages, self._tracker, preserve_order=preserve_order)
        self._last = self._operators[-1]
        self._output = OutputBuffer(self._tracker, has_points=preserve_order)
        self._last.target = self._output
        self._last.restore(self._last.first_point() if start is None else start)
        # Nearest to the consumer first. With branches, the order is computed for every choice.
        self._by_depth = sorted(self._operators, key=lambda each: (each.depth, each.number))
        self._has_branches = any(len(each.inputs) > 1 for each in self._operators)
        self._max_depth = max(each.depth for each in self._operators)
        self._tasks: dict[TaskId, Task] = {}  # running, or waiting to be resumed
        self._running = 0
        self._slots = 0.0
        self._used_slots = 0.0
        self._budget_bytes = 0
        self._reserved_bytes = 0  # expected next blocks of running tasks
        self._errored = 0
        self._lifecycle = Lifecycle("the execution", TRANSITIONS, ExecutionState.CREATED)

    # -- events

    def handle(self, event: Event) -> list[Instruction]:
        """Apply an event and return the instructions to carry out, in order."""
        instructions: list[Instruction] = []
        self._tracker.instructions = instructions
        if self._lifecycle.is_final:
            instructions.extend(Drop(block=block) for block in _blocks_of(event))
            return instructions
        self.dispatch(event)
        self._cancel_released_tasks()
        if self._lifecycle.state is ExecutionState.RUNNING:
            while self._tracker.failure is None and self._start_next():
                self._cancel_released_tasks()
            if self._tracker.failure is not None:
                self._stop(Fail(error=self._tracker.failure))
            elif self._output.ended and not self._output:
                self._stop(Finish())
        return instructions

    @on(Produced)
    def _produced(self, event: Produced) -> None:
        task = self._tasks.get(event.task)
        if task is None:  # cancelled
            self._tracker.instructions.append(Drop(block=event.info.block))
            return
        self._deactivate(task, is_over=event.is_last)
        task.operator.produced(task, event.info, is_last=event.is_last)

    @on(Taken)
    def _taken(self, event: Taken) -> None:
        self._output.taken()

    @on(Ended)
    def _ended(self, event: Ended) -> None:
        if task := self._tasks.get(event.task):
            self._deactivate(task, is_over=True)
            task.operator.ended(task)

    @on(Prepared)
    def _prepared(self, event: Prepared) -> None:
        operator = self._operators[event.stage]
        assert isinstance(operator, ExchangeOperator), f"stage {event.stage} prepares nothing"
        if not operator.closed:
            operator.prepared()

    @on(Abandoned)
    def _abandoned(self, event: Abandoned) -> None:
        self._stop(Finish())

    @on(Started)
    def _set_limits(self, event: Started) -> None:
        self._slots, self._budget_bytes = event.slots, event.budget_bytes
        expected = int(self._budget_bytes / (_BLOCKS_IN_BUDGET_PER_SLOT * max(1.0, self._slots)))
        for operator in self._operators:
            if isinstance(operator, TaskOperator):
                chain = operator.stage.chain
                limit = chain.max_block_bytes if chain is not None else None
                operator.guess_bytes = expected if limit is None else min(expected, limit)
        if self._lifecycle.state is ExecutionState.CREATED:
            self._lifecycle.go(ExecutionState.RUNNING, f"{event.slots} slots")
            for operator in reversed(self._operators):
                if not operator.closed:
                    operator.open()

    @on(Partitioned)
    def _partitioned(self, event: Partitioned) -> None:
        task = self._tasks.get(event.task)
        if task is None:
            self._tracker.instructions.extend(Drop(block=block) for block in _blocks_of(event))
            return
        self._deactivate(task, is_over=True)
        assert isinstance(task.operator, ExchangeOperator), f"{task.id} partitions nothing"
        task.operator.partitioned(task, event)

    @on(Failed)
    def _failed(self, event: Failed) -> None:
        task = self._tasks.get(event.task)
        if task is None:
            return
        if not event.counts_as_errored_block or 0 <= self._max_errored <= self._errored:
            self._tracker.failure = event.error
            del self._tasks[task.id]
            return
        self._errored += 1
        self._deactivate(task, is_over=True)
        task.operator.failed(task)

    # -- tasks

    def _deactivate(self, task: Task, *, is_over: bool) -> None:
        """Free the resources of a task that waits or has ended."""
        if task.running:
            task.running = False
            task.operator.running -= 1
            self._running -= 1
            self._used_slots -= task.slots
            self._reserved_bytes -= task.reserved_bytes
        if is_over:
            del self._tasks[task.id]

    def _cancel_released_tasks(self) -> None:
        for task in self._tracker.cancelled:
            if task.id in self._tasks:
                self._deactivate(task, is_over=True)
                self._tracker.instructions.append(Cancel(task=task.id))
        self._tracker.cancelled.clear()

    def _stop(self, last: Finish | Fail) -> None:
        """End the execution: cancel all tasks and drop all blocks."""
        if isinstance(last, Fail):
            self._lifecycle.go(ExecutionState.FAILED, repr(last.error))
        else:
            self._lifecycle.go(ExecutionState.FINISHED, "the output is complete or abandoned")
        instructions = self._tracker.instructions
        instructions.extend(Cancel(task=task_id) for task_id in self._tasks)
        instructions.extend(Drop(block=block) for block in self._tracker.blocks)
        instructions.append(last)
        self._tasks.clear()
        self._tracker.blocks.clear()
        for operator in self._operators:
            operator.inputs = ()  # breaks reference cycles, so that stages are freed immediately

    # -- priorities

    def _start_next(self) -> bool:
        """Perform the most urgent action that fits; return False if none fits."""
        for operator in self._by_priority():
            action = None if operator.closed else operator.next_action()
            if action is not None and self._fits(operator, action):
                self._perform(operator, action)
                return True
        if self._running or self._output:
            return False
        found = _blocking_action(self._last)
        if found is None:
            return False
        self._perform(*found)
        return True

    def _by_priority(self) -> Iterable[AnyOperator]:
        if not self._has_branches:
            return self._by_depth
        for operator in reversed(self._operators):
            needed = operator.needed_ports() if operator.needed and not operator.closed else ()
            for port, each in enumerate(operator.inputs):
                each.needed = port in needed
        return sorted(self._by_depth, key=lambda each: (not each.needed, each.depth, each.running))

    def _fits(self, operator: AnyOperator, action: Action) -> bool:
        if self._is_beyond_slots(action):
            return False
        if not action.size_bytes:
            return True
        share = self._share(operator) * (_AHEAD_SHARE if action.is_ahead else 1.0)
        return (
            self._tracker.counted_bytes + self._reserved_bytes + action.size_bytes
            <= share * self._budget_bytes
        )

    def _is_beyond_slots(self, action: Action) -> bool:
        # An action that needs more slots than exist needs all of them.
        needed = min(action.slots, self._slots) if self._slots else action.slots
        return self._used_slots + needed > self._slots + _SLOT_TOLERANCE

    def _share(self, operator: AnyOperator) -> float:
        """Return the part of the budget that may be in use when this stage adds a block."""
        if not operator.needed:
            return _FIRST_SHARE * _AHEAD_SHARE
        return (
            1.0 - (1.0 - _FIRST_SHARE) * operator.depth / self._max_depth
            if self._max_depth
            else 1.0
        )

    def _perform(self, operator: AnyOperator, action: Action) -> None:
        task = action.perform(self._is_beyond_slots(action))
        if task is None:
            return
        task.running = True
        task.slots = action.slots
        task.reserved_bytes = action.size_bytes
        operator.running += 1
        self._tasks[task.id] = task
        self._running += 1
        self._used_slots += action.slots
        self._reserved_bytes += action.size_bytes

    # -- statistics

    @property
    def held_bytes(self) -> int:
        """Bytes of the blocks that count against the budget."""
        return self._tracker.counted_bytes

    def snapshot(self) -> Counts:
        """Return statistics in time that does not depend on the length of queues."""
        return Counts(
            stages=tuple(self._stage_counts(each) for each in self._operators),
            slots=self._slots,
            used_slots=self._used_slots,
            budget_bytes=self._budget_bytes,
            held_bytes=self._tracker.counted_bytes,
            expected_bytes=self._reserved_bytes,
            delivered_blocks=len(self._output),
            errored_tasks=self._errored,
        )

    def _stage_counts(self, operator: AnyOperator) -> StageCounts:
        tasked = operator if isinstance(operator, TaskOperator) else None
        return StageCounts(
            queued_rows=operator.queued_rows,
            held_bytes=self._tracker.stage_bytes[operator.number],
            running=operator.running,
            waiting=0 if tasked is None else tasked.waiting,
            total=None if tasked is None else tasked.total,
            output_blocks=operator.output_blocks,
            output_rows=operator.output_rows,
            output_bytes=operator.output_bytes,
            ended=operator.closed,
        )


def _blocking_action(operator: AnyOperator) -> tuple[AnyOperator, Action] | None:
    """Return the action that the consumer waits for: that of the last operator, or of one of the
    inputs it needs.
    """
    if operator.closed:
        return None
    action = operator.next_action()
    if action is not None:
        return operator, action
    found = (_blocking_action(operator.inputs[port]) for port in operator.needed_ports())
    return next((each for each in found if each is not None), None)


def _blocks_of(event: Event) -> list[int]:
    match event:
        case Produced():
            return [event.info.block]
        case Partitioned():
            return [info.block for info in event.blocks]
        case _:
            return []
