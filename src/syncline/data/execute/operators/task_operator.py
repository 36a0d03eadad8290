"""Operators with tasks: they are numbered in the order of the input, and their blocks are passed on
in that order.

The task whose blocks come next is the head: its blocks go on as they are made, those of later tasks
wait until it has ended. Without order every block goes on as it comes. Restart point of a block:
`[point of its task, rows of the task's output before it]`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, NamedTuple

from syncline.data.execute import program as stages
from syncline.data.execute.messages import BlockInfo, Launch, Resume, TaskId
from syncline.data.execute.operators.base import Action, BlockTracker, G, Operator, Part
from syncline.data.execute.program import Actors, ExecutorKind, Stage

# How much of the mean size of a stage's blocks the newest one makes up.
_NEWEST = 1 / 8


class TaskSpec(NamedTuple):
    """A task that can be started. It holds the references of its parts."""

    number: int
    point: Any
    """Restart point of the task."""
    ports: tuple[tuple[Part, ...], ...]
    payload: Any = None
    rows: int | None = None
    """Rows of its input, where they are known."""


class Task:
    """A task that was started and has not ended, or whose blocks are not passed on yet."""

    __slots__ = (
        "held",
        "id",
        "operator",
        "over",
        "promised",
        "reserved_bytes",
        "rows",
        "running",
        "skip_rows",
        "slots",
        "spec",
    )

    def __init__(
        self, id: TaskId, operator: TaskOperator[Any], spec: TaskSpec, skip_rows: int = 0
    ) -> None:
        self.id = id
        self.operator = operator
        self.spec = spec
        self.skip_rows = skip_rows
        """Rows of its output that are not wanted."""
        self.rows = skip_rows
        """Rows of its output so far, with those."""
        self.expected_rows: int | None = None
        """Rows of its output that are expected in all, where they are known."""
        self.held: deque[Part] = deque()
        """Its blocks that wait for those of earlier tasks."""
        self.finished = False
        """Whether it has ended, in whatever way."""
        # Kept by the scheduler.
        self.running = False
        self.slots = 0.0
        self.reserved_bytes = 0


class TaskOperator(Operator[G], Generic[G]):
    """Base of the operators with tasks. Subclasses say which come next: `_has_spec`,
    `_take_spec`.
    """

    needs_all: ClassVar[bool] = False
    """Whether its first task depends on the whole input."""

    def __init__(
        self,
        number: int,
        stage: Stage,
        grouping: G,
        inputs: Sequence[Operator[Any]],
        tracker: BlockTracker,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(number, stage, grouping, inputs, tracker, ordered=ordered)
        self.guess_bytes = 0
        """Expected size of a block before there was one."""
        self.launched = 0
        self.done = 0
        self._mean_bytes: float | None = None
        self._max_running = max_running(stage.executor)
        self._active: dict[int, Task] = {}  # started, and not over
        self._in_order: deque[Task] = deque()  # with order: started, and not all passed on
        self._waiting: list[tuple[int, Task]] = []  # a heap of those that wait to be resumed
        self._skip_rows = 0  # of the first task
        # With a limit downstream: rows that are used at most, and rows that the started tasks make.
        self._row_limit: int | None = None
        self._expected_rows = 0

    # -- what tasks there are

    def _has_spec(self) -> bool:
        """Whether there is a task that could be started now."""
        raise NotImplementedError

    def _take_spec(self) -> TaskSpec:
        """The next task, which is started now."""
        raise NotImplementedError

    @property
    def total(self) -> int | None:
        """Number of tasks in all, if it is known."""
        return None

    # -- moves

    @property
    def expected_bytes(self) -> int:
        """Size of a task's next block, by those that came; never nothing, so that no task starts
        while the budget is used up.
        """
        return max(1, self.guess_bytes if self._mean_bytes is None else int(self._mean_bytes))

    @property
    def waiting(self) -> int:
        """Tasks that wait to be resumed."""
        return len(self._active) - self.running

    def next_action(self) -> Action | None:
        waiting = self._waiting
        while waiting and waiting[0][1].finished:  # failed while it waited
            heapq.heappop(waiting)
        if self.running >= self._max_running:
            return None
        if waiting:
            is_ahead = self.ordered and waiting[0][1] is not self._in_order[0]
            return Action(self.expected_bytes, self.stage.slots, is_ahead, self._resume)
        if (self._row_limit is None or self._expected_rows < self._row_limit) and self._has_spec():
            return Action(
                self.expected_bytes,
                self.stage.slots,
                self.ordered and bool(self._in_order),
                self._launch,
            )
        return None

    def _resume(self, beyond_slots: bool) -> Task:
        _, task = heapq.heappop(self._waiting)
        self.tracker.instructions.append(Resume(task=task.id))
        return task

    def _launch(self, beyond_slots: bool) -> Task:
        spec = self._take_spec()
        skip_rows, self._skip_rows = self._skip_rows, 0
        task = Task(TaskId(self.number, "task", spec.number), self, spec, skip_rows)
        if spec.rows is not None and self.stage.keeps_rows:
            task.expected_rows = max(spec.rows, skip_rows)
            self._expected_rows += task.expected_rows - skip_rows
        self.launched += 1
        self._active[spec.number] = task
        if self.ordered:
            self._in_order.append(task)
        ports = tuple(tuple(part.piece for part in port) for port in spec.ports)
        self.tracker.instructions.append(
            Launch(
                task=task.id,
                ports=ports,
                payload=spec.payload,
                skip_rows=skip_rows,
                beyond_slots=beyond_slots,
            )
        )
        return task

    # -- events

    def produced(self, task: Task, info: BlockInfo, *, is_last: bool) -> None:
        """A task has made a block."""
        size = info.size_bytes
        known = self._mean_bytes
        # Larger ones count at once: the blocks of a task may grow from one to the next.
        self._mean_bytes = (
            size if known is None or size > known else known + (size - known) * _NEWEST
        )
        part = Part(
            self.tracker.admit(info, self.number), 0, info.rows, [task.spec.point, task.rows]
        )
        task.rows += info.rows
        self._count_output(part)
        if is_last:
            self._close(task)
        else:
            heapq.heappush(self._waiting, (task.spec.number, task))
        if self.ordered and self._in_order[0] is not task:
            task.held.append(part)
        else:
            self._emit(part)
        if is_last:
            self._settle()

    def ended(self, task: Task) -> None:
        """A task has ended without another block."""
        self._close(task)
        self._settle()

    def failed(self, task: Task) -> None:
        """The failure of a task is excused: what it has not made yet is missing."""
        self.ended(task)

    def _close(self, task: Task) -> None:
        task.finished = True
        del self._active[task.spec.number]
        self.done += 1
        for port in task.spec.ports:
            self._release(port)
        self._correct_expected_rows(task)

    def _settle(self) -> None:
        """After a task has ended."""
        self._pass_on_held()
        self._check_end()

    def _pass_on_held(self) -> None:
        """After the head has ended: what the next ones have made."""
        in_order = self._in_order
        while in_order and in_order[0].finished and not self.closed:
            in_order.popleft()
            if in_order:
                held = in_order[0].held
                while held and not self.closed:
                    self._emit(held.popleft())

    def _check_end(self) -> None:
        if not (
            self.closed or self.live_ports or self._active or self._in_order or self._has_spec()
        ):
            self._finish()

    # -- a limit downstream

    def limit_rows(self, rows: int) -> None:
        if self.stage.keeps_rows:
            self._row_limit = rows
            if not self.needs_all:
                for each in self.inputs:
                    each.limit_rows(rows + self._skip_rows + self._max_collected_rows())

    def _max_collected_rows(self) -> int:
        """The most rows that may have come without making another task."""
        return 0

    def extend_row_limit(self, rows: int) -> None:
        if self._row_limit is not None:
            self._row_limit += rows
            for each in self.inputs:
                each.extend_row_limit(rows)

    def _correct_expected_rows(self, task: Task) -> None:
        """A task is over: what counts now is the rows that it has made."""
        if self._row_limit is None:
            return
        if task.expected_rows is None:
            self._expected_rows += task.rows - task.skip_rows
            return
        self._expected_rows += task.rows - task.expected_rows
        if task.rows < task.expected_rows:
            for each in self.inputs:
                each.extend_row_limit(task.expected_rows - task.rows)

    # -- abandoned

    def _release_all(self) -> None:
        for task in self._active.values():
            for port in task.spec.ports:
                self._release(port)
        self.tracker.cancelled.extend(self._active.values())
        self._active.clear()
        for task in self._in_order:
            self._release(task.held)
        self._in_order.clear()
        self._waiting.clear()


class QueuedOperator(TaskOperator[G], Generic[G]):
    """Base of those that know what their next tasks work on before these are started."""

    def __init__(
        self,
        number: int,
        stage: Stage,
        grouping: G,
        inputs: Sequence[Operator[Any]],
        tracker: BlockTracker,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(number, stage, grouping, inputs, tracker, ordered=ordered)
        self._ready: deque[TaskSpec] = deque()

    def _has_spec(self) -> bool:
        return bool(self._ready)

    def _take_spec(self) -> TaskSpec:
        spec = self._ready.popleft()
        for parts in spec.ports:
            for part in parts:
                self._unqueue(part)
        return spec

    @property
    def total(self) -> int | None:
        return None if self.live_ports else self.launched + len(self._ready)

    def _release_all(self) -> None:
        super()._release_all()
        for spec in self._ready:
            for parts in spec.ports:
                self._release(parts)
        self._ready.clear()


def max_running(executor: ExecutorKind) -> float:
    """The most tasks that may run at once.

    No task is started while one of its stage waits, so that actors and workers which keep a waiting
    task are bounded as well.
    """
    most = (
        executor.size
        if not isinstance(executor, Actors)
        else None
        if executor.max_size is None
        else executor.max_size * executor.in_flight
    )
    return float("inf") if most is None else most


class SourceTaskOperator(TaskOperator[stages.SourceTasks]):
    """A task per payload, but for those that are done."""

    _next = 0

    def open(self) -> None:
        self._skip_done()
        self._check_end()

    def _skip_done(self) -> None:
        while self._next in self.grouping.done:
            self._next += 1
            self._skip_rows = 0

    def _has_spec(self) -> bool:
        return self._next < len(self.grouping.payloads)

    def _take_spec(self) -> TaskSpec:
        number, payload = self._next, self.grouping.payloads[self._next]
        self._next += 1
        self._skip_done()
        return TaskSpec(number, number, (), payload, getattr(payload, "num_rows", None))

    @property
    def total(self) -> int | None:
        return len(self.grouping.payloads) - len(self.grouping.done)

    def first_point(self) -> Any:
        return [0, 0]

    def restore(self, point: Any) -> None:
        self._next, self._skip_rows = point
