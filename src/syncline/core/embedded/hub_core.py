"""The part of the hub that its tables use: messages to processes, objects, references and streams.

`Hub` completes it with the tables and the message handlers.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from syncline.core import refs
from syncline.core.embedded import messages as m
from syncline.core.embedded.hub_records import HubStatistics, ItemCallback, Process, Stream
from syncline.core.embedded.instructions import Instruction
from syncline.core.embedded.interrupts import make_guard
from syncline.core.embedded.messages import Message, Value, ValueCallback, error_value
from syncline.core.embedded.object_store import Store
from syncline.core.embedded.object_table import ObjectTable
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.scheduler import Scheduler
from syncline.core.embedded.worker_output import WorkerOutput
from syncline.core.embedded.worker_processes import WorkerProcesses
from syncline.exceptions import ObjectLostError

EXIT_GRACE_S = 10.0
"""Seconds a process may take to exit after a stop request."""
_ERROR_ITEM_BIT = 1 << 127
"""Marks the id of a stream's error item; no process makes such ids."""

process_numbers = itertools.count(1)
"""Numbers of processes, unique over all sessions of one program.

Object ids are made from them, and a reference may outlive its session.
"""


@dataclass(kw_only=True, eq=False)
class HubCore(ABC):
    """State and services of the hub. The caller holds `guard`."""

    scheduler: Scheduler
    store: Store
    output: WorkerOutput
    reactor: Reactor
    node: Mapping[str, object]
    """Description of this machine, without its resources."""

    def __post_init__(self) -> None:
        self.guard = make_guard()
        self.on_debugger: Callable[[str], None] = lambda path: None
        """Called when a worker waits in the debugger, with its file."""
        self.program = b""
        """State of the program (`ProgramState`, pickled) for the workers."""
        self.workers: WorkerProcesses  # assigned by `start`, which makes it after the hub
        self.objects = ObjectTable(self.store.release)
        self.driver = Process(next(process_numbers), None)
        self.processes: dict[int, Process] = {self.driver.number: self.driver}
        self.streams: dict[int, Stream] = {}
        self.code: dict[int, bytes] = {}  # pickled functions and classes by id
        self.closed = False
        self._dirty: list[Process] = []  # processes with messages to flush

    @property
    @abstractmethod
    def statistics(self) -> HubStatistics:
        """Current counts."""

    @abstractmethod
    def apply(self, instructions: Sequence[Instruction]) -> None:
        """Execute the scheduler's instructions."""

    @abstractmethod
    def on_stream_dropped(self, task_id: int) -> None:
        """Handle the loss of the last reference to a generator that still runs."""

    # -- processes

    def send(self, process: Process, message: Message) -> None:
        """Queue a message for the next `flush`."""
        if process.channel is None or process.gone:
            return
        process.channel.enqueue(message)
        self._dirty.append(process)

    def send_later(self, process: Process, message: Message) -> None:
        """Queue a message that may wait until the process sends one."""
        if process.channel is not None and not process.gone:
            process.channel.enqueue(message)

    def send_code(self, process: Process, function_id: int) -> None:
        """Send a function or class that the process does not have."""
        if function_id not in process.sent_definitions:
            process.sent_definitions.add(function_id)
            self.send(process, (m.DEFINE_FUNCTION, function_id, self.code[function_id]))

    def send_program(self, process: Process) -> None:
        """Send the state of the program if the process has another one."""
        if process.program is not self.program:
            process.program = self.program
            self.send(process, (m.SET_PROGRAM, self.program))

    def flush(self) -> None:
        """Write queued messages to the sockets."""
        for process in self._dirty:
            channel = process.channel
            if channel is not None and not process.gone:
                channel.flush()
                if channel.congested:
                    self.reactor.modify(channel.fileno(), writable=True)
        self._dirty.clear()

    def stop(self, process: Process, *, force: bool = False) -> None:
        """Ask a worker to exit, or kill it. The caller has dealt with its tasks and its actor."""
        if process.gone or process.stop_reason:
            return
        process.stop_reason = "was ended by the engine"
        process.actor_id = 0
        if force:
            self.workers.kill(process.number)
            return
        self.send(process, (m.EXIT,))
        self.reactor.call_later(EXIT_GRACE_S, partial(self.workers.kill, process.number))

    def kill(self, process: Process, reason: str) -> None:
        """Kill a worker; its tasks fail with `reason`."""
        process.stop_reason = reason
        self.workers.kill(process.number)

    # -- objects

    def apply_refcounts(self) -> None:
        """Apply the references that the driver's program made and dropped."""
        journal = refs.journal
        while journal:
            self._apply_refcount(self.driver, journal.popleft())

    def _apply_refcount(self, process: Process, change: int) -> None:
        held = process.refcounts
        if change > 0:
            entry = self.objects.entries.get(change)
            if entry is not None:
                entry.count += 1
                held[change] = held.get(change, 0) + 1
            return
        count = held.get(-change, 0)
        if count > 1:
            held[-change] = count - 1
        elif count:
            del held[-change]
        else:
            return
        self.objects.release((-change,))

    def hold_for(self, process: Process, id: int) -> None:
        """Record a reference that the hub made for a process."""
        process.refcounts[id] = process.refcounts.get(id, 0) + 1

    def subscribe(self, id: int, callback: ValueCallback) -> None:
        """Call `callback` when the object has a value; a lost object has an error as its value."""
        try:
            self.objects.subscribe(id, callback)
        except KeyError:
            callback(id, lost(id))

    def settle(self, process: Process, id: int, value: Value) -> None:
        """Give an object the value that a process sent."""
        if value[0] == m.SHARED:
            process.segments.pop(value[1].segment.name, None)
        self.objects.settle(id, value)

    def discard(self, process: Process, value: Value) -> None:
        """Free a value from a process that has no receiver."""
        if value[0] == m.SHARED:
            process.segments.pop(value[1].segment.name, None)
        self.objects.discard(value)

    # -- streams

    def open_stream(self, id: int) -> None:
        """Create the stream of a generator task."""
        self.streams[id] = Stream()
        entry = self.objects.entries.get(id)
        if entry is not None:
            entry.on_free = self._drop_stream

    def request_item(
        self, process: Process, stream_id: int, index: int, callback: ItemCallback
    ) -> None:
        """Call `callback` with an item's id, held for the process, or with None past the end."""
        stream = self.streams.get(stream_id)
        if stream is not None and index >= stream.demand:
            stream.demand = index + 1
            if stream.producers:
                self._resume_producers(stream)
        if stream is None or (stream.ended and index >= len(stream.items)):
            callback(None)
        elif index < len(stream.items):
            self._hand_out(process, stream, index, callback)
        else:
            stream.waiting.setdefault(index, []).append((process, callback))

    def await_demand(self, stream_id: int, number: int, callback: ItemCallback) -> None:
        """Call `callback(None)` when `number` items were requested, or the stream is dropped."""
        stream = self.streams.get(stream_id)
        if stream is None or stream.demand >= number:
            callback(None)
        else:
            stream.producers.append((number, callback))

    def _resume_producers(self, stream: Stream) -> None:
        due = [callback for number, callback in stream.producers if number <= stream.demand]
        stream.producers = [entry for entry in stream.producers if entry[0] > stream.demand]
        for callback in due:
            callback(None)

    def end_stream(self, stream_id: int, error: Value | None) -> None:
        """End a stream; `error` becomes its last item."""
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        if error is not None:
            id = stream_id + _ERROR_ITEM_BIT
            self.objects.add(id)
            self.objects.settle(id, error)
            self._append_item(stream, id)
        stream.ended = True
        for waiting in stream.waiting.values():
            for _, callback in waiting:
                callback(None)
        stream.waiting.clear()

    def _append_item(self, stream: Stream, id: int) -> None:
        stream.items.append(id)
        index = len(stream.items) - 1
        for process, callback in stream.waiting.pop(index, ()):
            self._hand_out(process, stream, index, callback)

    def _hand_out(
        self, process: Process, stream: Stream, index: int, callback: ItemCallback
    ) -> None:
        id = stream.items[index]
        if index in stream.handed_out:
            self.objects.hold((id,))
        else:
            stream.handed_out.add(index)  # the stream's own reference passes to the process
        self.hold_for(process, id)
        callback(id)

    def _drop_stream(self, id: int) -> None:
        stream = self.streams.pop(id)
        for _, callback in stream.producers:
            callback(None)
        self.objects.release(
            [item for index, item in enumerate(stream.items) if index not in stream.handed_out]
        )
        if not stream.ended:
            self.on_stream_dropped(id)


def lost(id: int) -> Value:
    """Return the error of an object that was freed."""
    message = (
        f"The object {id:032x} does not exist any more: its last reference was dropped, or it "
        "belongs to another program. Keep an ObjectRef for as long as the value is needed."
    )
    return error_value(ObjectLostError(message, object_id=f"{id:032x}"))
