"""The hub: the driver's side of every conversation. It knows the processes, the objects and who
waits for what.

One lock (`guard`) covers all of it. A message of a process comes in through `handle`, whatever
thread reads it; the driver's own requests come in the same way, without a channel. Tasks are in
`tasks`, actors in `actor_table`, what can be asked is in `requests`.
"""

from __future__ import annotations

import itertools
import select
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from syncline.core import refs
from syncline.core.embedded import messages as m
from syncline.core.embedded.actor_table import ActorTable
from syncline.core.embedded.channel import Channel, ChannelClosedError
from syncline.core.embedded.endings import Ending
from syncline.core.embedded.groups import GroupTable
from syncline.core.embedded.instructions import (
    Assign,
    AssignActor,
    GroupReady,
    Instruction,
    StartWorker,
    StopWorker,
)
from syncline.core.embedded.interrupts import make_guard
from syncline.core.embedded.messages import Message, Value
from syncline.core.embedded.objects import Arrival, ObjectTable
from syncline.core.embedded.output import Output
from syncline.core.embedded.processes import Processes
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.records import Answer, HubStatistics, Process, Stream
from syncline.core.embedded.requests import Requests
from syncline.core.embedded.scheduler import Scheduler
from syncline.core.embedded.store import Store
from syncline.core.embedded.tasks import TaskTable
from syncline.core.embedded.values import error_value
from syncline.exceptions import ObjectLostError

START_ATTEMPTS = 5
"""After so many workers in a row that ended before they were ready, what waits for them fails."""
LEAVE_S = 10.0
"""How long a process that was asked to leave may take."""
CAUSE_S = 2.0
"""How long the hub waits to hear why a process that closed its channel has ended."""
LOST_CONNECTION = Ending(cause="lost its connection")

_numbers = itertools.count(1)
"""Numbers for processes, never the same in two sessions of one program: ids are made from them, and
a reference may outlive its session.
"""


class AfterWork(Protocol):
    """What the driver's link does once the lock is released."""

    def run_callbacks(self) -> None:
        """Call what has become due."""


class Hub:
    """See the module. Methods are called under `guard`, but for those that say otherwise."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        store: Store,
        output: Output,
        reactor: Reactor,
        node: dict[str, Any],
    ) -> None:
        self.guard = make_guard()
        self.scheduler = scheduler
        self.store = store
        self.output = output
        self.reactor = reactor
        self.node = node
        self.objects = ObjectTable(store)
        self.driver = Process(next(_numbers), None)
        self.processes: dict[int, Process] = {self.driver.number: self.driver}
        self.streams: dict[int, Stream] = {}
        self.code: dict[int, bytes] = {}
        self.tasks = TaskTable(self)
        self.actors = ActorTable(self)
        self.groups = GroupTable(self)
        self._requests = Requests(self)
        self.workers: Processes  # set by `start`, which makes it with this hub as its listener
        self.link: AfterWork  # the driver's, set by `start`
        self._dirty: list[Process] = []
        self._messages = 0
        self._failed_starts = 0
        self.closed = False
        self._handlers: dict[int, Callable[[Process, Message], None]] = {
            m.REFS: self._on_refs,
            m.FUNCTION: self._on_function,
            m.SUBMIT: self.tasks.on_submit,
            m.CALL: self.actors.on_call,
            m.PUT: self._on_put,
            m.WANT: self._on_want,
            m.WATCH: self._on_watch,
            m.UNWANT: self._on_unwant,
            m.ITEM_WANTED: self._on_item_wanted,
            m.REQUEST: self._on_request,
            m.BLOCKED: self.tasks.on_blocked,
            m.UNBLOCKED: self.tasks.on_unblocked,
            m.RETURNED: self.tasks.on_returned,
            m.READY: self._on_ready,
            m.DONE: self._on_done,
            m.ITEM: self._on_item,
            m.CONSTRUCTED: self.actors.on_constructed,
            m.RETIRE: self._on_retire,
        }

    @property
    def statistics(self) -> HubStatistics:
        """Counts of everything."""
        return HubStatistics(
            processes=len(self.processes),
            tasks=len(self.tasks.tasks),
            plans=len(self.tasks.plans),
            functions=len(self.code),
            streams=len(self.streams),
            actors=len(self.actors.actors),
            messages_handled=self._messages,
        )

    # -- in and out

    def handle(self, process: Process, message: Message) -> None:
        """A message of the driver."""
        self.tend()
        self._handlers[message[0]](process, message)
        if self._dirty:
            self.flush()

    def perform(self, process: Process, operation: str, arguments: tuple[Any, ...]) -> Any:
        """A request of the driver; raises what the operation raises."""
        self.tend()
        try:
            return self._requests.perform(process, operation, arguments)
        finally:
            self.flush()

    def tend(self) -> None:
        """Count the references that the driver's program made and dropped since."""
        journal = refs.journal
        while journal:
            self._count(self.driver, journal.popleft())

    def tend_in_background(self) -> None:
        """The same, while nobody else is about to. Takes the lock."""
        if refs.journal:
            with self.guard:
                self.tend()
                self.flush()
            self.link.run_callbacks()

    def send(self, process: Process, message: Message) -> None:
        """Say something to a process; it leaves with the next `flush`."""
        if process.channel is None or process.gone:
            return
        process.channel.hold(message)
        self._dirty.append(process)

    def send_later(self, process: Process, message: Message) -> None:
        """Say something that is needed when the process has done what it has: it leaves when the
        process next says something.
        """
        if process.channel is not None and not process.gone:
            process.channel.hold(message)

    def flush(self) -> None:
        """Hand to the sockets what was said."""
        for process in self._dirty:
            channel = process.channel
            if channel is not None and not process.gone:
                channel.flush()
                if channel.congested:
                    self.reactor.modify(channel.fileno(), writable=True)
        self._dirty.clear()

    def carry_out(self, instructions: Sequence[Instruction]) -> None:
        """Do what the scheduler says."""
        for step in instructions:
            kind = type(step)
            if kind is Assign:
                self.tasks.assign(step)  # type: ignore[arg-type]
            elif kind is StartWorker:
                for _ in range(step.processes):  # type: ignore[union-attr]
                    self._start_worker(step.environment)  # type: ignore[union-attr]
            elif kind is AssignActor:
                self.actors.assign(step)  # type: ignore[arg-type]
            elif kind is GroupReady:
                self.groups.ready(step.group_id)  # type: ignore[union-attr]
            elif kind is StopWorker:
                self.let_go(self.processes[step.worker])  # type: ignore[union-attr]

    # -- processes

    def adopt(self, channel: Channel) -> Process:
        """A child process of ours has connected: give it a number."""
        process = self._add_process(next(_numbers), channel, None)
        self.send(process, (m.WELCOME, process.number))
        return process

    def let_go(self, process: Process, *, at_once: bool = False) -> None:
        """End a worker: politely, or at once. Its tasks and its actor are somebody else's business
        already.
        """
        if process.gone or process.expected_end:
            return
        process.expected_end = "was ended by the engine"
        process.actor_id = 0
        if at_once:
            self.workers.kill(process.number)
            return
        self.send(process, (m.LEAVE,))
        self.reactor.call_later(LEAVE_S, partial(self._end_straggler, process))

    def kill(self, process: Process, reason: str) -> None:
        """End a worker at once; what it does is lost for the reason given."""
        process.expected_end = reason
        self.workers.kill(process.number)

    def on_started(self, number: int, pid: int) -> None:
        """The template has made a worker. Takes the lock."""
        with self.guard:
            process = self.processes.get(number)
            if process is None:
                return
            process.pid = pid
            if process.expected_end:  # it was to be killed before it had a process
                self.workers.kill(number)

    def on_ended(self, number: int, ending: Ending) -> None:
        """A worker's process has ended. Takes the lock."""
        with self.guard:
            process = self.processes.get(number)
            if process is not None and not self.closed:
                self._read_the_rest(process)
                self._lose(process, ending)
            self.flush()
        self.link.run_callbacks()

    def _start_worker(self, environment: str) -> None:
        number = next(_numbers)
        channel = Channel(self.workers.start(number, environment))
        self._add_process(number, channel, environment)

    def _add_process(self, number: int, channel: Channel, environment: str | None) -> Process:
        process = Process(number, channel, environment=environment)
        self.processes[number] = process
        self.reactor.register(channel.fileno(), partial(self._on_event, process))
        return process

    def _on_event(self, process: Process, events: int) -> None:
        """The channel of a process can be read or written. Takes the lock."""
        channel = process.channel
        assert channel is not None
        with self.guard:
            if process.gone or self.closed:
                return
            self.tend()
            if events & select.EPOLLOUT:
                channel.write_backlog()
                self.reactor.modify(channel.fileno(), writable=channel.congested)
            closed = False
            try:
                self._handle_all(process, channel.receive())
            except ChannelClosedError:
                closed = True
            if closed:
                self._on_closed(process)
            else:
                self._dirty.append(process)  # what waited for it to say something
            self.flush()
        self.link.run_callbacks()

    def _handle_all(self, process: Process, messages: list[Message]) -> None:
        handlers = self._handlers
        self._messages += len(messages)
        for message in messages:
            handlers[message[0]](process, message)

    def _on_closed(self, process: Process) -> None:
        assert process.channel is not None
        self.reactor.unregister(process.channel.fileno())
        if process.environment is None or self.workers.template_pid is None:
            self._lose(process, LOST_CONNECTION)
            return
        self.reactor.call_later(CAUSE_S, partial(self._lose_after_all, process))

    def _lose_after_all(self, process: Process) -> None:
        self.workers.kill(
            process.number
        )  # what it started and left: the template that would have ended it is dead
        self.workers.forget(process.number)
        self.on_ended(process.number, LOST_CONNECTION)

    def _end_straggler(self, process: Process) -> None:
        with self.guard:
            if not process.gone:
                self.workers.kill(process.number)

    def _read_the_rest(self, process: Process) -> None:
        """Handle what a process said before it ended."""
        assert process.channel is not None
        try:
            while process.channel.has_input():
                self._handle_all(process, process.channel.receive())
        except ChannelClosedError:
            return

    def _lose(self, process: Process, ending: Ending) -> None:
        """A process is gone: what it did is lost or tried again, what it held is released."""
        assert process.channel is not None
        process.gone = True
        del self.processes[process.number]
        self.reactor.unregister(process.channel.fileno())
        process.channel.close()
        for key, arrival in process.waits.items():
            self.objects.forget_arrival(abs(key), arrival)
        if process.environment is not None:
            self.output.end(process.number)
            if process.ready:
                self.tasks.on_worker_lost(process, ending)
            else:
                self._on_start_failed(process, ending)
        for id, count in process.held.items():
            self.objects.release([id] * count)
        for segment in process.segments.values():
            self.store.release(segment)

    def _on_start_failed(self, process: Process, ending: Ending) -> None:
        """A worker ended before it was ready. After a few in a row, what waits for one fails
        instead of waiting for ever.
        """
        environment = process.environment
        assert environment is not None
        if not process.expected_end:
            self._failed_starts += 1
        if self._failed_starts >= START_ATTEMPTS:
            self._failed_starts = 0
            reason = f"worker processes cannot start: the last of {START_ATTEMPTS} {ending.cause}.\n{self.output.tail(process.number)}".rstrip()
            self.tasks.give_up(environment, reason)
            self.actors.give_up(environment, reason)
        self.carry_out(self.scheduler.start_failed(environment))

    def _on_ready(self, process: Process, message: Message) -> None:
        process.ready = True
        self._failed_starts = 0
        assert process.environment is not None
        self.carry_out(self.scheduler.worker_ready(process.number, process.environment))

    def _on_retire(self, process: Process, message: Message) -> None:
        if message[1] == "exit_actor":
            self.actors.on_exit(process)
        else:
            self.carry_out(self.scheduler.retire(process.number))

    # -- objects

    def await_value(self, id: int, arrival: Arrival) -> None:
        """Call `arrival` when the object has a value; an object that is gone has the error that
        says so.
        """
        try:
            self.objects.await_value(id, arrival)
        except KeyError:
            arrival(id, lost(id))

    def hold_for(self, process: Process, id: int) -> None:
        """A reference was made for a process."""
        process.held[id] = process.held.get(id, 0) + 1

    def settle(self, process: Process | None, id: int, value: Value) -> None:
        """An object's value has come from a process."""
        if value[0] == m.SHARED and process is not None:
            process.segments.pop(value[1].segment.name, None)
        self.objects.settle(id, value)

    def _count(self, process: Process, change: int) -> None:
        held = process.held
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

    def _on_refs(self, process: Process, message: Message) -> None:
        for change in message[1]:
            self._count(process, change)

    def _on_function(self, process: Process, message: Message) -> None:
        self.code[message[1]] = message[2]

    def _on_put(self, process: Process, message: Message) -> None:
        _, id, value = message
        self.objects.add(id)
        self.hold_for(process, id)
        self.settle(process, id, value)

    def _on_want(self, process: Process, message: Message) -> None:
        for id in message[1]:

            def arrive(id: int, value: Value) -> None:
                process.waits.pop(id, None)
                self.send(process, (m.VALUE, id, value))

            process.waits[id] = arrive
            self.await_value(id, arrive)

    def _on_watch(self, process: Process, message: Message) -> None:
        for id in message[1]:

            def arrive(id: int, _: Value) -> None:
                process.waits.pop(-id, None)
                self.send(process, (m.ARRIVED, id))

            process.waits[-id] = arrive
            self.await_value(id, arrive)

    def _on_unwant(self, process: Process, message: Message) -> None:
        for id in message[1]:
            for key in (id, -id):
                arrival = process.waits.pop(key, None)
                if arrival is not None:
                    self.objects.forget_arrival(id, arrival)

    def _on_request(self, process: Process, message: Message) -> None:
        _, token, operation, arguments = message
        try:
            answer = (m.REPLY, token, True, self._requests.perform(process, operation, arguments))
        except Exception as error:
            answer = (m.REPLY, token, False, error)
        self.send(process, answer)

    def _on_done(self, process: Process, message: Message) -> None:
        if process.actor_id:
            self.actors.on_done(process, message)
        else:
            self.tasks.on_done(process, message)

    # -- streams

    def open_stream(self, id: int) -> None:
        """A generator task was submitted."""
        self.streams[id] = Stream()
        entry = self.objects.entries.get(id)
        if entry is not None:
            entry.on_free = self._drop_stream

    def want_item(self, process: Process, stream_id: int, index: int, answer: Answer) -> None:
        """Answer with the id of an item, counted for the process; with None past the end."""
        stream = self.streams.get(stream_id)
        if stream is None or (stream.ended and index >= len(stream.items)):
            answer(None)
        elif index < len(stream.items):
            self._give(process, stream, index, answer)
        else:
            stream.wanted.setdefault(index, []).append((process, answer))

    def end_stream(self, stream_id: int, error: Value | None) -> None:
        """No further items; `error` becomes the last one."""
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        if error is not None:
            id = stream_id + (1 << 62)  # no process makes such ids
            self.objects.add(id)
            self.objects.settle(id, error)
            self._append(stream, id)
        stream.ended = True
        for waiting in stream.wanted.values():
            for _, answer in waiting:
                answer(None)
        stream.wanted.clear()

    def _on_item_wanted(self, process: Process, message: Message) -> None:
        _, stream_id, index, token = message
        self.want_item(
            process, stream_id, index, lambda id: self.send(process, (m.NEXT_ITEM, token, id))
        )

    def _on_item(self, process: Process, message: Message) -> None:
        _, stream_id, index, id, value = message
        stream = self.streams.get(stream_id)
        if stream is None or index < len(stream.items):  # dropped, or made a second time by a retry
            if value[0] == m.SHARED:
                process.segments.pop(value[1].segment.name, None)
            self.objects.discard(value)
            return
        self.objects.add(id)
        self.settle(process, id, value)
        self._append(stream, id)

    def _append(self, stream: Stream, id: int) -> None:
        stream.items.append(id)
        index = len(stream.items) - 1
        for process, answer in stream.wanted.pop(index, ()):
            self._give(process, stream, index, answer)

    def _give(self, process: Process, stream: Stream, index: int, answer: Answer) -> None:
        id = stream.items[index]
        if index in stream.given:
            self.objects.hold((id,))
        else:
            stream.given.add(index)  # the stream's own count becomes the process's
        self.hold_for(process, id)
        answer(id)

    def _drop_stream(self, id: int) -> None:
        stream = self.streams.pop(id)
        self.objects.release(
            [item for index, item in enumerate(stream.items) if index not in stream.given]
        )
        if not stream.ended:
            self.tasks.cancel_dropped(id)


def lost(id: int) -> Value:
    """The error for an object that does not exist any more."""
    message = (
        f"The object {id:032x} does not exist any more: its last reference was dropped, or it belongs to another program. "
        f"Keep an ObjectRef for as long as the value is needed."
    )
    return error_value(ObjectLostError(message, object_id=f"{id:032x}"))
