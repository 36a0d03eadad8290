"""All-to-all exchange: collect the input, optionally sample it, partition it, run a task per part.

    large input -> (sample each block -> prepare ->) partition each block -> a task per partition
    small input -> one task with all blocks

Neither the input nor the partitioned blocks count against the budget (see `BlockTracker`). Restart
point of a row: `[partition, rows of its output before it]`. A restart runs everything upstream from
its beginning and drops the pieces of earlier partitions.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

from syncline.data.execute import physical_plan as stages
from syncline.data.execute.messages import Launch, Partitioned, Prepare, TaskId
from syncline.data.execute.operators.base import Action, OperatorSetup, Part, Task, TaskSpec
from syncline.data.execute.operators.task_operator import TaskOperator, max_running
from syncline.data.iterate.position import RestartPoint


class ExchangeOperator(TaskOperator[stages.ExchangeRows]):
    """Exchange of one or more inputs.

    Blocks are numbered round-robin over the inputs. Empty blocks are left out, except one for an
    input without rows.
    """

    needs_all = True

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        grouping = self.grouping
        self._count = grouping.default_parts if grouping.parts is None else grouping.parts
        self._max_exchange_tasks = max_running(grouping.executor)
        self._phase: Literal["gather", "partition", "reduce"] = "gather"
        self._received = [0] * len(self.inputs)
        self._bytes = 0
        self._held: dict[int, Part] = {}  # by block number: not partitioned so far
        self._exchange_tasks: dict[TaskId, Task] = {}  # sampling and partitioning tasks
        self._to_sample: deque[int] = deque()
        self._to_partition: deque[int] = deque()
        self._prepared = grouping.sample is None
        self._parts: dict[int, tuple[Part | None, ...]] = {}  # by block number
        self._schemas: dict[int, Part] = {}  # by input: an empty part that provides the columns
        self._next = 0  # partition

    # -- gathering

    def add(self, port: int, part: Part) -> None:
        self.tracker.uncount(part.block)
        if not part.rows:
            self._keep_schema(port, part)
            return
        number = self._received[port] * len(self.inputs) + port
        self._received[port] += 1
        self._bytes += part.size_bytes
        self.queued_rows += part.rows
        self._held[number] = part
        if self._phase == "partition":
            self._enqueue(number)
        elif self._count > 1 and (
            self.grouping.parts is not None or self._bytes > self.grouping.direct_bytes
        ):
            self._phase = "partition"
            for each in sorted(self._held):
                self._enqueue(each)

    def _keep_schema(self, port: int, part: Part) -> None:
        if port in self._schemas:
            self.tracker.release(part.block)
        else:
            self._schemas[port] = part

    def _enqueue(self, number: int) -> None:
        (self._to_partition if self.grouping.sample is None else self._to_sample).append(number)

    def _input_ended(self, port: int) -> None:
        self._advance_phase()

    def _advance_phase(self) -> None:
        """Enter the next phase if this one is complete."""
        if (
            self.live_ports
            or self._exchange_tasks
            or self._to_sample
            or self._to_partition
            or self._phase == "reduce"
        ):
            return
        if self._phase == "gather":
            self._count = 1
            self._parts = {number: (part,) for number, part in self._held.items()}
            self._held.clear()
        elif not self._prepared:
            self.tracker.instructions.append(Prepare(stage=self.number, parts=self._count))
            return
        self._phase = "reduce"
        self._parts = dict(sorted(self._parts.items()))
        self._complete_schemas()
        self._check_end()

    def prepared(self) -> None:
        """Handle the result of `prepare`."""
        self._prepared = True
        self._to_partition.extend(sorted(self._held))
        self._advance_phase()

    def _complete_schemas(self) -> None:
        """Take the columns of each input with rows from one of its blocks."""
        found = {}
        for number, parts in self._parts.items():
            port = number % len(self.inputs)
            first = next((part for part in parts if part is not None), None)
            if port not in found and first is not None:
                self.tracker.share(first.block)
                found[port] = first._replace(stop=first.start)
        for port in found.keys() & self._schemas.keys():
            self.tracker.release(self._schemas[port].block)
        self._schemas |= found

    # -- sampling and partitioning

    def next_action(self) -> Action | None:
        if not self._to_sample and not self._to_partition:
            return super().next_action()
        if len(self._exchange_tasks) >= self._max_exchange_tasks:
            return None
        return Action(0, 1.0, False, self._launch_exchange_task)

    def _launch_exchange_task(self, beyond_slots: bool) -> Task:
        kind: Literal["sample", "partition"] = "sample" if self._to_sample else "partition"
        number = (self._to_sample or self._to_partition).popleft()
        part = self._held[number]
        task = Task(TaskId(self.number, kind, number), self, TaskSpec(number, None, ((part,),)))
        self._exchange_tasks[task.id] = task
        port = number % len(self.inputs)
        parts = self._count if kind == "partition" else 0
        self.tracker.instructions.append(
            Launch(
                task=task.id,
                ports=((part.piece,),),
                parts=parts,
                port=port,
                beyond_slots=beyond_slots,
            )
        )
        return task

    def partitioned(self, task: Task, event: Partitioned) -> None:
        """Replace a partitioned block by its pieces."""
        blocks = {
            info.block: self.tracker.admit(info, self.number, counted=False)
            for info in event.blocks
        }
        parts: list[Part | None] = [None] * self._next
        for piece in event.parts[self._next :]:
            part = None
            if piece is not None:
                part = Part(blocks[piece.block], piece.start, piece.stop, None)
                self.tracker.share(part.block)
                self.queued_rows += part.rows
            parts.append(part)
        self._parts[task.spec.number] = tuple(parts)
        for block in blocks.values():
            self.tracker.release(block)
        self._release_input(task)

    def ended(self, task: Task) -> None:
        if task.id not in self._exchange_tasks:
            super().ended(task)
            return
        del self._exchange_tasks[task.id]
        self._advance_phase()

    def failed(self, task: Task) -> None:
        if task.id in self._exchange_tasks:
            self._release_input(task)
        else:
            super().failed(task)

    def _release_input(self, task: Task) -> None:
        """Release the input of an ended task."""
        part = self._held.pop(task.spec.number)
        self.queued_rows -= part.rows
        self.tracker.release(part.block)
        self.ended(task)

    # -- a task per partition

    def _has_spec(self) -> bool:
        return self._phase == "reduce" and self._next < self._count

    def _take_spec(self) -> TaskSpec:
        partition = self._next
        ports: list[list[Part]] = [[] for _ in self.inputs]
        for number, parts in self._parts.items():
            part = parts[partition]
            if part is not None:
                ports[number % len(ports)].append(part)
                self.queued_rows -= part.rows
        for port, schema in self._schemas.items():
            if not ports[port]:
                self.tracker.share(schema.block)
                ports[port].append(schema)
        self._next += 1
        if self._next >= self._count:
            self._parts.clear()
            self._release_schemas()
        return TaskSpec(partition, partition, tuple(tuple(port) for port in ports))

    def _release_schemas(self) -> None:
        self._release(tuple(self._schemas.values()))
        self._schemas.clear()

    @property
    def total(self) -> int | None:
        return None if self._phase == "gather" else self._count

    def first_point(self) -> RestartPoint:
        return [0, 0]

    def restore(self, point: RestartPoint) -> None:
        self._next, self._skip_rows = point
        self._restart_inputs()

    def _release_all(self) -> None:
        super()._release_all()
        self.tracker.cancelled.extend(self._exchange_tasks.values())
        self._exchange_tasks.clear()
        self._release(tuple(self._held.values()))
        self._held.clear()
        for parts in self._parts.values():
            self._release([part for part in parts[self._next :] if part is not None])
        self._parts.clear()
        self._to_sample.clear()
        self._to_partition.clear()
        self._release_schemas()
