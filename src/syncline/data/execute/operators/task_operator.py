"""Operators with tasks, which are numbered in the order of their input.

With order, blocks of the first task that has not ended are emitted immediately; blocks of later
tasks are held until it ends. Without order, every block is emitted immediately. Restart point of a
block: `[restart point of its task, rows of the task's output before it]`.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import ClassVar, Generic

from syncline.data.execute import physical_plan as stages
from syncline.data.execute.messages import BlockInfo, Launch, Resume, TaskId
from syncline.data.execute.operators.base import (
    Action,
    G,
    Operator,
    OperatorSetup,
    Part,
    Task,
    TaskSpec,
)
from syncline.data.execute.physical_plan import Actors, ExecutorKind
from syncline.data.iterate.position import RestartPoint

# Weight of the newest block in the mean size of a stage's blocks.
_NEWEST_WEIGHT = 1 / 8


class TaskOperator(Operator[G], Generic[G]):
    """Base of the operators with tasks. Subclasses define `_has_spec` and `_take_spec`."""

    needs_all: ClassVar[bool] = False
    """True if the first task depends on the whole input."""

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        self.guess_bytes = 0
        """Expected block size before the first block."""
        self.launched = 0
        self._mean_bytes: float | None = None
        self._max_running = max_running(setup.stage.executor)
        self._active: dict[int, Task] = {}  # started and not ended
        self._in_order: deque[Task] = deque()  # with order: started and not completely emitted
        self._waiting: list[tuple[int, Task]] = []  # heap of tasks that wait to be resumed
        self._skip_rows = 0  # of the first task
        # With a downstream limit: the maximum number of needed rows, and the rows of started tasks.
        self._row_limit: int | None = None
        self._expected_rows = 0

    # -- available tasks

    def _has_spec(self) -> bool:
        """Return True if a task can be started."""
        raise NotImplementedError

    def _take_spec(self) -> TaskSpec:
        """Return the next task, which is started now."""
        raise NotImplementedError

    @property
    def total(self) -> int | None:
        """Total number of tasks, if known."""
        return None

    # -- actions

    @property
    def expected_bytes(self) -> int:
        """Expected size of the next block: at least 1, so that nothing starts without budget."""
        return max(1, self.guess_bytes if self._mean_bytes is None else int(self._mean_bytes))

    @property
    def waiting(self) -> int:
        """Number of tasks that wait to be resumed."""
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
        """Handle a block of a task."""
        size = info.size_bytes
        known = self._mean_bytes
        # A larger block replaces the mean: the blocks of a task may grow from one to the next.
        self._mean_bytes = (
            size if known is None or size > known else known + (size - known) * _NEWEST_WEIGHT
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
        """Handle the end of a task without another block."""
        self._close(task)
        self._settle()

    def failed(self, task: Task) -> None:
        """Handle an excused failure of a task: its remaining rows are missing."""
        self.ended(task)

    def _close(self, task: Task) -> None:
        task.finished = True
        del self._active[task.spec.number]
        for port in task.spec.ports:
            self._release(port)
        self._correct_expected_rows(task)

    def _settle(self) -> None:
        self._emit_held()
        self._check_end()

    def _emit_held(self) -> None:
        """Emit the blocks of the tasks that follow the ended ones."""
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

    # -- downstream limit

    def limit_rows(self, rows: int) -> None:
        if self.stage.keeps_rows:
            self._row_limit = rows
            if not self.needs_all:
                for each in self.inputs:
                    each.limit_rows(rows + self._skip_rows + self._max_collected_rows())

    def _max_collected_rows(self) -> int:
        """Return the most rows that can arrive without completing another task."""
        return 0

    def extend_row_limit(self, rows: int) -> None:
        if self._row_limit is not None:
            self._row_limit += rows
            for each in self.inputs:
                each.extend_row_limit(rows)

    def _correct_expected_rows(self, task: Task) -> None:
        """Replace the expected rows of an ended task by its actual rows."""
        if self._row_limit is None:
            return
        if task.expected_rows is None:
            self._expected_rows += task.rows - task.skip_rows
            return
        self._expected_rows += task.rows - task.expected_rows
        if task.rows < task.expected_rows:
            for each in self.inputs:
                each.extend_row_limit(task.expected_rows - task.rows)

    # -- release

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
    """Base of the operators that create their tasks as input arrives."""

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        self._ready: deque[TaskSpec] = deque()

    def _has_spec(self) -> bool:
        return bool(self._ready)

    def _take_spec(self) -> TaskSpec:
        spec = self._ready.popleft()
        for parts in spec.ports:
            for part in parts:
                self.queued_rows -= part.rows
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
    """Return the maximum number of concurrent tasks.

    No task starts while another task of its stage waits, so the number of actors and workers that
    hold a waiting task is limited as well.
    """
    if not isinstance(executor, Actors):
        limit = executor.size
    else:
        limit = None if executor.max_size is None else executor.max_size * executor.in_flight
    return float("inf") if limit is None else limit


class SourceTaskOperator(TaskOperator[stages.SourceTasks]):
    """One task per payload, except finished ones. Restart point of a task: its number."""

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

    def first_point(self) -> RestartPoint:
        return [0, 0]

    def restore(self, point: RestartPoint) -> None:
        self._next, self._skip_rows = point
