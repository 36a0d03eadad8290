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

from syncline.data.execute.messages import BlockFacts, Launch, Resume, TaskId
from syncline.data.execute.operators.base import G, Move, Operator
from syncline.data.execute.operators.ledger import Ledger, Part
from syncline.data.execute.stages import Actors, Lane, Stage

# How much of the mean size of a stage's blocks the newest one makes up.
_NEWEST = 1 / 8


class Spec(NamedTuple):
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
        self, id: TaskId, operator: TaskedOperator[Any], spec: Spec, skip_rows: int = 0
    ) -> None:
        self.id = id
        self.operator = operator
        self.spec = spec
        self.skip_rows = skip_rows
        """Rows of its output that are not wanted."""
        self.rows = skip_rows
        """Rows of its output so far, with those."""
        self.promised: int | None = None
        """Rows of its output that are expected in all, where they are known."""
        self.held: deque[Part] = deque()
        """Its blocks that wait for those of earlier tasks."""
        self.over = False
        """Whether it has ended, in whatever way."""
        # Kept by the scheduler.
        self.running = False
        self.slots = 0.0
        self.reserved_bytes = 0


class TaskedOperator(Operator[G], Generic[G]):
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
        ledger: Ledger,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(number, stage, grouping, inputs, ledger, ordered=ordered)
        self.guess_bytes = 0
        """Expected size of a block before there was one."""
        self.launched = 0
        self.done = 0
        self._mean_bytes: float | None = None
        self._most_running = most_running(stage.lane)
        self._active: dict[int, Task] = {}  # started, and not over
        self._in_order: deque[Task] = deque()  # with order: started, and not all passed on
        self._waiting: list[tuple[int, Task]] = []  # a heap of those that wait to be resumed
        self._skip_rows = 0  # of the first task
        # With a limit downstream: rows that are used at most, and rows that the started tasks make.
        self._quota: int | None = None
        self._promised = 0

    # -- what tasks there are

    def _has_spec(self) -> bool:
        """Whether there is a task that could be started now."""
        raise NotImplementedError

    def _take_spec(self) -> Spec:
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

    def next_move(self) -> Move | None:
        waiting = self._waiting
        while waiting and waiting[0][1].over:  # failed while it waited
            heapq.heappop(waiting)
        if self.running >= self._most_running:
            return None
        if waiting:
            is_ahead = self.ordered and waiting[0][1] is not self._in_order[0]
            return Move(self.expected_bytes, self.stage.slots, is_ahead, self._resume)
        if (self._quota is None or self._promised < self._quota) and self._has_spec():
            return Move(
                self.expected_bytes,
                self.stage.slots,
                self.ordered and bool(self._in_order),
                self._launch,
            )
        return None

    def _resume(self, beyond_slots: bool) -> Task:
        _, task = heapq.heappop(self._waiting)
        self.ledger.instructions.append(Resume(task=task.id))
        return task

    def _launch(self, beyond_slots: bool) -> Task:
        spec = self._take_spec()
        skip_rows, self._skip_rows = self._skip_rows, 0
        task = Task(TaskId(self.number, "task", spec.number), self, spec, skip_rows)
        if spec.rows is not None and self.stage.keeps_rows:
            task.promised = max(spec.rows, skip_rows)
            self._promised += task.promised - skip_rows
        self.launched += 1
        self._active[spec.number] = task
        if self.ordered:
            self._in_order.append(task)
        ports = tuple(tuple(part.piece for part in port) for port in spec.ports)
        self.ledger.instructions.append(
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

    def produced(self, task: Task, facts: BlockFacts, *, is_last: bool) -> None:
        """A task has made a block."""
        size = facts.size_bytes
        known = self._mean_bytes
        # Larger ones count at once: the blocks of a task may grow from one to the next.
        self._mean_bytes = (
            size if known is None or size > known else known + (size - known) * _NEWEST
        )
        part = Part(
            self.ledger.admit(facts, self.number), 0, facts.rows, [task.spec.point, task.rows]
        )
        task.rows += facts.rows
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
        task.over = True
        del self._active[task.spec.number]
        self.done += 1
        for port in task.spec.ports:
            self._release(port)
        self._correct_promise(task)

    def _settle(self) -> None:
        """After a task has ended."""
        self._pass_on_held()
        self._check_end()

    def _pass_on_held(self) -> None:
        """After the head has ended: what the next ones have made."""
        in_order = self._in_order
        while in_order and in_order[0].over and not self.closed:
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

    def expect_at_most(self, rows: int) -> None:
        if self.stage.keeps_rows:
            self._quota = rows
            if not self.needs_all:
                for each in self.inputs:
                    each.expect_at_most(rows + self._skip_rows + self._most_collected())

    def _most_collected(self) -> int:
        """The most rows that may have come without making another task."""
        return 0

    def expect_more(self, rows: int) -> None:
        if self._quota is not None:
            self._quota += rows
            for each in self.inputs:
                each.expect_more(rows)

    def _correct_promise(self, task: Task) -> None:
        """A task is over: what counts now is the rows that it has made."""
        if self._quota is None:
            return
        if task.promised is None:
            self._promised += task.rows - task.skip_rows
            return
        self._promised += task.rows - task.promised
        if task.rows < task.promised:
            for each in self.inputs:
                each.expect_more(task.promised - task.rows)

    # -- abandoned

    def _release_all(self) -> None:
        for task in self._active.values():
            for port in task.spec.ports:
                self._release(port)
        self.ledger.cancelled.extend(self._active.values())
        self._active.clear()
        for task in self._in_order:
            self._release(task.held)
        self._in_order.clear()
        self._waiting.clear()


class QueuedOperator(TaskedOperator[G], Generic[G]):
    """Base of those that know what their next tasks work on before these are started."""

    def __init__(
        self,
        number: int,
        stage: Stage,
        grouping: G,
        inputs: Sequence[Operator[Any]],
        ledger: Ledger,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(number, stage, grouping, inputs, ledger, ordered=ordered)
        self._ready: deque[Spec] = deque()

    def _has_spec(self) -> bool:
        return bool(self._ready)

    def _take_spec(self) -> Spec:
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


def most_running(lane: Lane) -> float:
    """The most tasks that may run at once.

    No task is started while one of its stage waits, so that actors and workers which keep a waiting
    task are bounded as well.
    """
    most = (
        lane.size
        if not isinstance(lane, Actors)
        else None
        if lane.max_size is None
        else lane.max_size * lane.in_flight
    )
    return float("inf") if most is None else most
