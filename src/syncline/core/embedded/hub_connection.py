"""The connection of a process to the hub: messages, requests, and waiting for values.

The driver shares the hub's memory (`start.LocalHubConnection`); every other process uses a channel
(`RemoteHubConnection`). An engine uses both in the same way.
"""

from __future__ import annotations

import itertools
import logging
import select
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from syncline.core import refs
from syncline.core.embedded import messages as m
from syncline.core.embedded.channel import Channel, ChannelClosedError
from syncline.core.embedded.hub_records import ItemCallback
from syncline.core.embedded.interrupts import Guard, make_guard
from syncline.core.embedded.messages import Message, Value, ValueCallback
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.segments import Segment
from syncline.core.embedded.shared_reactor import SharedReactor, Waiter

logger = logging.getLogger("syncline")

BACKLOG_LIMIT_BYTES = 8 << 20
"""Unsent bytes above which a sending worker waits for the hub to read."""


class HubConnection(ABC):
    """The common part. `guard` protects the state of the process; callbacks are called under it."""

    def __init__(self, guard: Guard, shared_reactor: SharedReactor) -> None:
        self.guard = guard
        self.shared_reactor = shared_reactor
        self.callbacks: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        # a worker's: removes and returns the tasks that it has not started
        self.before_wait: Callable[[], Sequence[int]] | None = None
        self.waiting: set[int] = set()  # a worker's threads that wait for a value

    # -- differs between the two kinds

    @abstractmethod
    def send(self, message: Message) -> None:
        """Send a message to the hub.

        Messages of one process arrive in order, after the references that it made before.
        """

    @abstractmethod
    def request(self, operation: str, *arguments: object) -> Any:
        """Return the hub's answer; raises the errors of the operation."""

    @abstractmethod
    def _subscribe(self, ids: Iterable[int], callback: ValueCallback, *, value: bool) -> None:
        """Call `callback(id, value)` once for each id, now or later.

        Without `value` the callback's second argument is undefined.
        """

    @abstractmethod
    def _unsubscribe(self, ids: Iterable[int], callback: ValueCallback) -> None:
        """Cancel the subscriptions of ids that have no value yet."""

    @abstractmethod
    def _request_item(self, stream_id: int, index: int, callback: ItemCallback) -> None:
        """Call `callback` with an item's id, or with None past the end.

        The hub has counted the reference for this process.
        """

    # -- used by engines

    def allocate(self, nbytes: int) -> Segment:
        """Return a shared-memory segment for writing."""
        return self.request("allocate", nbytes)  # type: ignore[no-any-return]

    def values(self, ids: Iterable[int], timeout_s: float | None) -> dict[int, Value]:
        """Return the values of all `ids`.

        If the timeout expires or a value is an error, return only the values that have arrived.
        """
        values: dict[int, Value] = {}
        wanted = set(ids)
        waiter = Waiter(len(wanted))

        def on_value(id: int, value: Value) -> None:
            values[id] = value
            if value[0] == m.ERROR:
                waiter.settle()
            else:
                waiter.count()

        with self.guard:
            self._subscribe(wanted, on_value, value=True)
        try:
            self._wait(waiter, timeout_s)
        finally:
            if len(values) < len(wanted):
                with self.guard:
                    self._unsubscribe(wanted - values.keys(), on_value)
        return values

    def value(self, id: int, timeout_s: float | None) -> Value | None:
        """Return the value of an object, or None after the timeout."""
        received: list[Value] = []
        waiter = Waiter()

        def on_value(_: int, value: Value) -> None:
            received.append(value)
            waiter.settle()

        with self.guard:
            self._subscribe((id,), on_value, value=True)
        if waiter.done:
            return received[0]
        try:
            self._wait(waiter, timeout_s)
        finally:
            if not received:
                with self.guard:
                    self._unsubscribe((id,), on_value)
        return received[0] if received else None

    def ready(
        self,
        ids: Sequence[int],
        count: int,
        timeout_s: float | None,
        others: Mapping[int, Callable[[Callable[[], None]], None]] = MappingProxyType({}),
    ) -> set[int]:
        """Return the ids with a value once `count` have one or the timeout expires.

        `others` have functions that request a call when the id counts as ready.
        """
        arrived: set[int] = set()
        waiter = Waiter(count)

        def on_value(id: int, _: Value) -> None:
            arrived.add(id)
            waiter.count()

        def on_ready(id: int) -> None:
            with self.guard:
                on_value(id, m.NONE_VALUE)

        wanted = set(ids)
        with self.guard:
            self._subscribe(wanted, on_value, value=False)
        for id, when_ready in others.items():
            when_ready(partial(on_ready, id))
        try:
            self._wait(waiter, timeout_s)
        finally:
            with self.guard:
                self._unsubscribe(wanted - arrived, on_value)
        return arrived

    def item(self, stream_id: int, index: int, timeout_s: float | None) -> tuple[bool, int | None]:
        """Return (arrived in time, id of the item or None past the end)."""
        answers: list[int | None] = []
        waiter = Waiter()

        def answer(id: int | None) -> None:
            answers.append(id)
            waiter.settle()

        with self.guard:
            self._request_item(stream_id, index, answer)
        arrived = self._wait(waiter, timeout_s)
        return arrived, answers[0] if arrived else None

    def call_back(self, id: int, callback: Callable[[Value], None]) -> None:
        """Call `callback(value)` when there is one, outside the lock, on any thread."""

        def on_value(_: int, value: Value) -> None:
            self.callbacks.append((callback, (value,)))

        with self.guard:
            self._subscribe([id], on_value, value=True)
        self.run_callbacks()

    def call_back_item(
        self, stream_id: int, index: int, callback: Callable[[int | None], None]
    ) -> None:
        """Call `callback` when an item exists or the stream has ended, like `call_back`."""

        def answer(id: int | None) -> None:
            self.callbacks.append((callback, (id,)))

        with self.guard:
            self._request_item(stream_id, index, answer)
        self.run_callbacks()

    def run_callbacks(self) -> None:
        """Run the callbacks that became due, in order."""
        while self.callbacks:
            try:
                callback, arguments = self.callbacks.popleft()
            except IndexError:  # another thread took it
                return
            try:
                callback(*arguments)
            except Exception:
                logger.exception("a callback of a value failed")

    def _wait(self, waiter: Waiter, timeout_s: float | None) -> bool:
        if waiter.done or timeout_s == 0:
            return waiter.done
        if self.before_wait is None:
            return self.shared_reactor.wait(waiter, timeout_s)
        thread = threading.get_ident()
        self.waiting.add(thread)  # before `before_wait`, so that no task slips in between
        try:
            self.send((m.BLOCKED, self.before_wait()))
            return self.shared_reactor.wait(waiter, timeout_s)
        finally:
            self.waiting.discard(thread)
            self.send((m.UNBLOCKED,))


class RemoteHubConnection(HubConnection):
    """Connection of a worker or a child process, over a channel."""

    def __init__(self, channel: Channel, shared_reactor: SharedReactor, reactor: Reactor) -> None:
        super().__init__(make_guard(), shared_reactor)
        self._channel = channel
        self._reactor = reactor
        self._tokens = itertools.count(1)
        self._value_callbacks: dict[int, list[ValueCallback]] = {}
        self._ready_callbacks: dict[int, list[ValueCallback]] = {}
        self._answers: dict[int, Callable[..., None]] = {}  # by token
        # receives every message that is not an answer
        self.accept_work: Callable[[Message], None] | None = None
        self.on_closed: Callable[[], None] = lambda: None
        reactor.register(channel.fileno(), self._on_event)

    def send(self, message: Message) -> None:
        with self.guard:
            self._send(message)

    def send_all(self) -> None:
        """Wait until the hub's end has all messages; called before the process ends."""
        with self.guard:
            self._channel.drain(0)

    def await_demand(self, stream_id: int, number: int) -> None:
        """Wait until `number` items of a stream were requested, or no consumer is left."""
        waiter = Waiter()
        token = next(self._tokens)
        with self.guard:
            self._answers[token] = lambda _: waiter.settle()
            self._send((m.AWAIT_DEMAND, stream_id, number, token))
        self._wait(waiter, None)

    def flush_references(self) -> None:
        """Send the references that were made and dropped while nothing was sent."""
        if refs.journal:
            with self.guard:
                made, dropped = self._changes()
                self._channel.send((m.REFS, made + dropped))

    def request(self, operation: str, *arguments: object) -> Any:
        waiter = Waiter()
        answers: list[tuple[bool, Any]] = []

        def answer(ok: bool, result: object) -> None:
            answers.append((ok, result))
            waiter.settle()

        token = next(self._tokens)
        with self.guard:
            self._answers[token] = answer
            self._send((m.REQUEST, token, operation, arguments))
        self.shared_reactor.wait(waiter)
        ok, result = answers[0]
        if not ok:
            raise result
        return result

    def _send(self, message: Message) -> None:
        channel = self._channel
        if refs.journal:
            made, dropped = self._changes()
            if made:
                channel.enqueue((m.REFS, made))
            channel.enqueue(message)
            if dropped:  # afterwards, because the message may contain the last use of them
                channel.enqueue((m.REFS, dropped))
            channel.flush()
        else:
            channel.send(message)
        if channel.congested:
            channel.drain(BACKLOG_LIMIT_BYTES)
            self._reactor.modify(channel.fileno(), writable=channel.congested)

    def _changes(self) -> tuple[list[int], list[int]]:
        """Return the references made and those dropped since the last call."""
        journal = refs.journal
        made: list[int] = []
        dropped: list[int] = []
        while journal:
            change = journal.popleft()
            (made if change > 0 else dropped).append(change)
        return made, dropped

    def _subscribe(self, ids: Iterable[int], callback: ValueCallback, *, value: bool) -> None:
        table = self._value_callbacks if value else self._ready_callbacks
        new = []
        for id in ids:
            known = table.get(id)
            if known is None:
                table[id] = [callback]
                new.append(id)
            else:
                known.append(callback)
        if new:
            self._send((m.SUBSCRIBE_VALUE if value else m.SUBSCRIBE_READY, new))

    def _unsubscribe(self, ids: Iterable[int], callback: ValueCallback) -> None:
        idle = []
        for id in ids:
            for table in (self._value_callbacks, self._ready_callbacks):
                known = table.get(id)
                if known is not None and callback in known:
                    known.remove(callback)
                    if not known:
                        del table[id]
            if id not in self._value_callbacks and id not in self._ready_callbacks:
                idle.append(id)
        if idle:
            self._send((m.UNSUBSCRIBE, idle))

    def _request_item(self, stream_id: int, index: int, callback: ItemCallback) -> None:
        token = next(self._tokens)
        self._answers[token] = callback
        self._send((m.REQUEST_ITEM, stream_id, index, token))

    def _on_event(self, events: int) -> None:
        closed = False
        with self.guard:
            if events & select.POLLOUT:
                self._channel.write_backlog()
                self._reactor.modify(self._channel.fileno(), writable=self._channel.congested)
            try:
                for message in self._channel.receive():
                    self._accept(message)
            except ChannelClosedError:
                closed = True
                self._reactor.unregister(self._channel.fileno())
        if closed:
            self.on_closed()
        if self.callbacks:
            self.run_callbacks()

    def _accept(self, message: Message) -> None:
        kind = message[0]
        if kind == m.VALUE:
            for callback in self._value_callbacks.pop(message[1], ()):
                callback(message[1], message[2])
        elif kind == m.VALUE_READY:
            for callback in self._ready_callbacks.pop(message[1], ()):
                callback(message[1], m.NONE_VALUE)
        elif kind == m.REPLY:
            self._answers.pop(message[1])(message[2], message[3])
        elif kind == m.ITEM_REPLY:
            self._answers.pop(message[1])(message[2])
        elif self.accept_work is not None:
            self.accept_work(message)
