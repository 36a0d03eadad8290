"""The hub: the driver's server for all processes of the session.

It handles their messages, keeps the tables of tasks, actors and placement groups, and applies the
scheduler's instructions. One lock (`guard`) covers all state. Messages of processes arrive through
their channels, on any thread; the driver calls `handle` and `perform` directly.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from functools import partial

from syncline.core import refs
from syncline.core.embedded import messages as m
from syncline.core.embedded.actor_table import ActorTable
from syncline.core.embedded.channel import Channel, ChannelClosedError
from syncline.core.embedded.exit_status import ExitStatus
from syncline.core.embedded.group_table import GroupTable
from syncline.core.embedded.hub_connection import HubConnection
from syncline.core.embedded.hub_core import HubCore, process_numbers
from syncline.core.embedded.hub_records import HubStatistics, Process
from syncline.core.embedded.hub_requests import HubRequests
from syncline.core.embedded.instructions import (
    Assign,
    AssignActor,
    GroupReady,
    GroupRemoval,
    Instruction,
    StartWorker,
    StopWorker,
    reject_unknown,
)
from syncline.core.embedded.messages import Message, Value
from syncline.core.embedded.task_table import TaskTable

START_ATTEMPTS = 5
"""Workers in a row that may end before they are ready; then the work that waits for them fails."""
EXIT_STATUS_S = 2.0
"""Seconds to wait for the exit status of a process that closed its channel."""
LOST_CONNECTION = ExitStatus(cause="lost its connection")


class Hub(HubCore):
    """See the module. The caller holds `guard` unless noted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tasks = TaskTable(self)
        self.actors = ActorTable(self, self.tasks)
        self.tasks.actor_calls = self.actors
        self.groups = GroupTable(self.scheduler, self.objects, self.apply, self._end_members)
        self.connection: HubConnection  # the driver's, assigned by `start`
        self._requests = HubRequests(self, self.tasks, self.actors, self.groups)
        self._messages_handled = 0
        self._failed_starts = 0
        self._handlers: dict[int, Callable[[Process, Message], None]] = {
            m.REFS: self._on_refs,
            m.FUNCTION: self._on_function,
            m.SUBMIT: self.tasks.on_submit,
            m.CALL: self.actors.on_call,
            m.PUT: self._on_put,
            m.SUBSCRIBE_VALUE: self._on_subscribe,
            m.SUBSCRIBE_READY: self._on_subscribe,
            m.UNSUBSCRIBE: self._on_unsubscribe,
            m.REQUEST_ITEM: self._on_request_item,
            m.AWAIT_DEMAND: self._on_await_demand,
            m.REQUEST: self._on_request,
            m.BLOCKED: self.tasks.on_blocked,
            m.UNBLOCKED: self.tasks.on_unblocked,
            m.RETURNED: self.tasks.on_returned,
            m.WORKER_READY: self._on_worker_ready,
            m.DONE: self._on_done,
            m.ITEM: self._on_item,
            m.CONSTRUCTED: self.actors.on_constructed,
            m.RETIRE: self._on_retire,
        }

    @property
    def statistics(self) -> HubStatistics:
        return HubStatistics(
            processes=len(self.processes),
            tasks=len(self.tasks.tasks),
            definitions=len(self.tasks.definitions),
            functions=len(self.code),
            streams=len(self.streams),
            actors=len(self.actors.actors),
            messages_handled=self._messages_handled,
        )

    def handle(self, process: Process, message: Message) -> None:
        """Handle a message of the driver."""
        self.apply_refcounts()
        self._handlers[message[0]](process, message)
        if self._dirty:
            self.flush()

    def perform(self, process: Process, operation: str, arguments: tuple[object, ...]) -> object:
        """Perform a request of the driver; raises the errors of the operation."""
        self.apply_refcounts()
        try:
            return self._requests.perform(process, operation, arguments)
        finally:
            self.flush()

    def apply_refcounts_in_background(self) -> None:
        """Apply reference counts while no thread uses the hub. Takes the lock."""
        if refs.journal:
            with self.guard:
                self.apply_refcounts()
                self.flush()
            self.connection.run_callbacks()

    def apply(self, instructions: Sequence[Instruction]) -> None:
        for step in instructions:
            if isinstance(step, Assign):
                self.tasks.assign(step)
            elif isinstance(step, StartWorker):
                for _ in range(step.processes):
                    self._start_worker(step.environment)
            elif isinstance(step, AssignActor):
                self.actors.assign(step)
            elif isinstance(step, GroupReady):
                self.groups.on_ready(step.group_id)
            elif isinstance(step, StopWorker):
                self.stop(self.processes[step.worker])
            else:
                reject_unknown(step)

    def _end_members(self, removal: GroupRemoval) -> None:
        self.tasks.remove_from_group(removal.queued, removal.running)
        for actor_id in removal.actors:
            self.actors.remove_from_group(actor_id)

    def on_stream_dropped(self, task_id: int) -> None:
        self.tasks.cancel_stream(task_id)

    # -- processes

    def add_child(self, channel: Channel) -> Process:
        """Add a child process that has connected, and send it its number."""
        process = self._add_process(next(process_numbers), channel, None)
        self.send(process, (m.WELCOME, process.number))
        return process

    def on_started(self, number: int, pid: int) -> None:
        """Handle the start of a worker process. Takes the lock."""
        with self.guard:
            process = self.processes.get(number)
            if process is None:
                return
            process.pid = pid
            if process.stop_reason:  # killed before it had a process
                self.workers.kill(number)

    def on_ended(self, number: int, status: ExitStatus) -> None:
        """Handle the end of a worker process. Takes the lock."""
        with self.guard:
            process = self.processes.get(number)
            if process is not None and not self.closed:
                self._read_rest(process)
                self._remove(process, status)
            self.flush()
        self.connection.run_callbacks()

    def _start_worker(self, environment: str) -> None:
        number = next(process_numbers)
        channel = Channel(self.workers.start(number, environment))
        self._add_process(number, channel, environment)

    def _add_process(self, number: int, channel: Channel, environment: str | None) -> Process:
        process = Process(number, channel, environment=environment)
        self.processes[number] = process
        self.reactor.register(channel.fileno(), partial(self._on_event, process))
        return process

    def _on_event(self, process: Process, events: int) -> None:
        """Read from and write to the channel of a process. Takes the lock."""
        channel = process.channel
        assert channel is not None
        with self.guard:
            if process.gone or self.closed:
                return
            self.apply_refcounts()
            if events & select.POLLOUT:
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
                self._dirty.append(process)  # flushes messages of `send_later`
            self.flush()
        self.connection.run_callbacks()

    def _handle_all(self, process: Process, messages: list[Message]) -> None:
        handlers = self._handlers
        self._messages_handled += len(messages)
        for message in messages:
            handlers[message[0]](process, message)

    def _on_closed(self, process: Process) -> None:
        assert process.channel is not None
        self.reactor.unregister(process.channel.fileno())
        if process.environment is None or self.workers.fork_server_pid is None:
            self._remove(process, LOST_CONNECTION)
            return
        self.reactor.call_later(EXIT_STATUS_S, partial(self._remove_without_status, process))

    def _remove_without_status(self, process: Process) -> None:
        # The fork server is dead and cannot kill the processes that the worker left behind.
        self.workers.kill(process.number)
        self.workers.forget(process.number)
        self.on_ended(process.number, LOST_CONNECTION)

    def _read_rest(self, process: Process) -> None:
        """Handle the messages that a process sent before it ended."""
        assert process.channel is not None
        try:
            while process.channel.has_input():
                self._handle_all(process, process.channel.receive())
        except ChannelClosedError:
            return

    def _remove(self, process: Process, status: ExitStatus) -> None:
        """Remove a dead process: retry or fail its tasks, release its references."""
        assert process.channel is not None
        process.gone = True
        del self.processes[process.number]
        self.reactor.unregister(process.channel.fileno())
        process.channel.close()
        for key, callback in process.subscriptions.items():
            self.objects.unsubscribe(abs(key), callback)
        if process.environment is not None:
            self.output.end(process.number)
            if process.ready:
                self.tasks.on_worker_lost(process, status)
            else:
                self._on_start_failed(process, process.environment, status)
        for id, count in process.refcounts.items():
            self.objects.release([id] * count)
        for segment in process.segments.values():
            self.store.release(segment)

    def _on_start_failed(self, process: Process, environment: str, status: ExitStatus) -> None:
        """Count a worker that ended before it was ready; fail waiting work after several."""
        if not process.stop_reason:
            self._failed_starts += 1
        if self._failed_starts >= START_ATTEMPTS:
            self._failed_starts = 0
            reason = (
                f"worker processes cannot start: the last of {START_ATTEMPTS} {status.cause}.\n"
                f"{self.output.tail(process.number)}"
            ).rstrip()
            self.tasks.fail_environment(environment, reason)
            self.actors.fail_environment(environment, reason)
        self.apply(self.scheduler.start_failed(environment))

    def _on_worker_ready(self, process: Process, message: Message) -> None:
        process.ready = True
        self._failed_starts = 0
        assert process.environment is not None
        self.apply(self.scheduler.worker_ready(process.number, process.environment))

    def _on_retire(self, process: Process, message: Message) -> None:
        if message[1] == "exit_actor":
            self.actors.on_exit(process)
        else:
            self.apply(self.scheduler.retire(process.number))

    # -- objects and streams

    def _on_refs(self, process: Process, message: Message) -> None:
        for change in message[1]:
            self._apply_refcount(process, change)

    def _on_function(self, process: Process, message: Message) -> None:
        self.code[message[1]] = message[2]

    def _on_put(self, process: Process, message: Message) -> None:
        _, id, value = message
        self.objects.add(id)
        self.hold_for(process, id)
        self.settle(process, id, value)

    def _on_subscribe(self, process: Process, message: Message) -> None:
        kind, ids = message
        sign = 1 if kind == m.SUBSCRIBE_VALUE else -1

        def on_value(id: int, value: Value) -> None:
            process.subscriptions.pop(sign * id, None)
            self.send(process, (m.VALUE, id, value) if sign > 0 else (m.VALUE_READY, id))

        for id in ids:
            process.subscriptions[sign * id] = on_value
            self.subscribe(id, on_value)

    def _on_unsubscribe(self, process: Process, message: Message) -> None:
        for id in message[1]:
            for key in (id, -id):
                callback = process.subscriptions.pop(key, None)
                if callback is not None:
                    self.objects.unsubscribe(id, callback)

    def _on_request_item(self, process: Process, message: Message) -> None:
        _, stream_id, index, token = message
        self.request_item(
            process, stream_id, index, lambda id: self.send(process, (m.ITEM_REPLY, token, id))
        )

    def _on_await_demand(self, process: Process, message: Message) -> None:
        _, stream_id, number, token = message
        self.await_demand(
            stream_id, number, lambda id: self.send(process, (m.ITEM_REPLY, token, id))
        )

    def _on_item(self, process: Process, message: Message) -> None:
        _, stream_id, index, id, value = message
        stream = self.streams.get(stream_id)
        if stream is None or index < len(stream.items):  # dropped, or repeated by a retry
            self.discard(process, value)
            return
        self.objects.add(id)
        self.settle(process, id, value)
        self._append_item(stream, id)

    def _on_request(self, process: Process, message: Message) -> None:
        _, token, operation, arguments = message
        try:
            reply = (m.REPLY, token, True, self._requests.perform(process, operation, arguments))
        except Exception as error:
            reply = (m.REPLY, token, False, error)
        self.send(process, reply)

    def _on_done(self, process: Process, message: Message) -> None:
        if process.actor_id:
            self.actors.on_done(process, message)
        else:
            self.tasks.on_done(process, message)
