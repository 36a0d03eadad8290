"""A process's connection to the hub: how it asks, what it waits for, and what happens when answers
arrive.

`LocalLink` is the driver's, which shares the hub's memory; `RemoteLink` is everybody else's, over a
channel. What an engine does with them is the same.
"""

from __future__ import annotations

import itertools
import logging
import select
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from syncline.core import refs
from syncline.core.embedded import messages as m
from syncline.core.embedded.channel import Channel, ChannelClosedError
from syncline.core.embedded.interrupts import Guard, make_guard
from syncline.core.embedded.messages import Message, Value
from syncline.core.embedded.pump import Pump, Waiter
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.store import Segment

if TYPE_CHECKING:
    from syncline.core.embedded.hub import Hub

logger = logging.getLogger("syncline")

Arrival = Callable[[int, Value], None]
BACKLOG_LIMIT_BYTES = 8 << 20
"""Unsent bytes above which a worker that sends waits for the hub to read."""


class Link(ABC):
    """What both kinds share. `guard` protects the state of the process's side; arrivals are called
    under it.
    """

    def __init__(self, guard: Guard, pump: Pump) -> None:
        self.guard = guard
        self.pump = pump
        self.callbacks: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.before_wait: Callable[[], Sequence[int]] | None = (
            None  # a worker's: the tasks that it gives back
        )
        self.waiting: set[int] = set()  # a worker's threads that wait for a value

    # -- what the two kinds do differently

    @abstractmethod
    def send(self, message: Message) -> None:
        """Tell the hub; messages of one process arrive in order, after the references that it made
        and dropped before.
        """

    @abstractmethod
    def request(self, operation: str, *arguments: Any) -> Any:
        """Ask the hub, and wait for the answer; raises what the operation raises."""

    @abstractmethod
    def _subscribe(self, ids: Iterable[int], arrival: Arrival, *, value: bool) -> None:
        """Have `arrival(id, value)` called for each, now or later, once. Without `value` the second
        argument means nothing.
        """

    @abstractmethod
    def _unsubscribe(self, ids: Iterable[int], arrival: Arrival) -> None:
        """Take that back for those that have not arrived."""

    @abstractmethod
    def _want_item(self, stream_id: int, index: int, answer: Callable[[int | None], None]) -> None:
        """Have `answer(item id)` called, or `answer(None)` past the end. The id is counted for this
        process already.
        """

    # -- what engines use

    def allocate(self, nbytes: int) -> Segment:
        """A shared-memory segment to write."""
        return self.request("allocate", nbytes)  # type: ignore[no-any-return]

    def values(self, ids: Iterable[int], timeout_s: float | None) -> dict[int, Value]:
        """The values of all `ids`, or of fewer: those that were there after `timeout_s`, or when
        the first error came.
        """
        sink: dict[int, Value] = {}
        wanted = set(ids)
        waiter = Waiter(len(wanted))

        def arrive(id: int, value: Value) -> None:
            sink[id] = value
            if value[0] == m.ERROR:
                waiter.settle()
            else:
                waiter.count()

        with self.guard:
            self._subscribe(wanted, arrive, value=True)
        try:
            self._wait(waiter, timeout_s)
        finally:
            if len(sink) < len(wanted):
                with self.guard:
                    self._unsubscribe(wanted - sink.keys(), arrive)
        return sink

    def value(self, id: int, timeout_s: float | None) -> Value | None:
        """The value of one object; None if it is not there after `timeout_s`."""
        sink: list[Value] = []
        waiter = Waiter()

        def arrive(_: int, value: Value) -> None:
            sink.append(value)
            waiter.settle()

        with self.guard:
            self._subscribe((id,), arrive, value=True)
        if waiter.done:
            return sink[0]
        try:
            self._wait(waiter, timeout_s)
        finally:
            if not sink:
                with self.guard:
                    self._unsubscribe((id,), arrive)
        return sink[0] if sink else None

    def ready(self, ids: Sequence[int], count: int, timeout_s: float | None) -> set[int]:
        """Which of `ids` have a value, once `count` have or `timeout_s` is over."""
        arrived: set[int] = set()
        waiter = Waiter(count)

        def arrive(id: int, _: Value) -> None:
            arrived.add(id)
            waiter.count()

        wanted = set(ids)
        with self.guard:
            self._subscribe(wanted, arrive, value=False)
        try:
            self._wait(waiter, timeout_s)
        finally:
            with self.guard:
                self._unsubscribe(wanted - arrived, arrive)
        return arrived

    def item(self, stream_id: int, index: int, timeout_s: float | None) -> tuple[bool, int | None]:
        """(whether it came in time, the id of the item or None past the end)."""
        answers: list[int | None] = []
        waiter = Waiter()

        def answer(id: int | None) -> None:
            answers.append(id)
            waiter.settle()

        with self.guard:
            self._want_item(stream_id, index, answer)
        came = self._wait(waiter, timeout_s)
        return came, answers[0] if came else None

    def call_back(self, id: int, callback: Callable[[Value], None]) -> None:
        """Call `callback(value)` when there is one, outside the lock, on whichever thread learns of
        it.
        """

        def arrive(_: int, value: Value) -> None:
            self.callbacks.append((callback, (value,)))

        with self.guard:
            self._subscribe([id], arrive, value=True)
        self.run_callbacks()

    def call_back_item(
        self, stream_id: int, index: int, callback: Callable[[int | None], None]
    ) -> None:
        """The same for an item of a stream."""

        def answer(id: int | None) -> None:
            self.callbacks.append((callback, (id,)))

        with self.guard:
            self._want_item(stream_id, index, answer)
        self.run_callbacks()

    def run_callbacks(self) -> None:
        """Call what has become due, in order."""
        while self.callbacks:
            try:
                callback, arguments = self.callbacks.popleft()
            except IndexError:  # another thread was quicker
                return
            try:
                callback(*arguments)
            except Exception:
                logger.exception("a callback of a value failed")

    def _wait(self, waiter: Waiter, timeout_s: float | None) -> bool:
        if waiter.done or timeout_s == 0:
            return waiter.done
        if self.before_wait is None:
            return self.pump.wait(waiter, timeout_s)
        thread = threading.get_ident()
        self.waiting.add(thread)  # first, so that no work slips in between
        try:
            self.send((m.BLOCKED, self.before_wait()))
            return self.pump.wait(waiter, timeout_s)
        finally:
            self.waiting.discard(thread)
            self.send((m.UNBLOCKED,))


class LocalLink(Link):
    """The driver's: the hub is in this process."""

    def __init__(self, hub: Hub, pump: Pump) -> None:
        super().__init__(hub.guard, pump)
        self._hub = hub

    def send(self, message: Message) -> None:
        with self.guard:
            self._hub.handle(self._hub.driver, message)
        if self.callbacks:
            self.run_callbacks()

    def request(self, operation: str, *arguments: Any) -> Any:
        with self.guard:
            answer = self._hub.perform(self._hub.driver, operation, arguments)
        if self.callbacks:
            self.run_callbacks()
        return answer

    def _subscribe(self, ids: Iterable[int], arrival: Arrival, *, value: bool) -> None:
        self._hub.tend()
        for id in ids:
            self._hub.await_value(id, arrival)

    def _unsubscribe(self, ids: Iterable[int], arrival: Arrival) -> None:
        for id in ids:
            self._hub.objects.forget_arrival(id, arrival)

    def _want_item(self, stream_id: int, index: int, answer: Callable[[int | None], None]) -> None:
        self._hub.tend()
        self._hub.want_item(self._hub.driver, stream_id, index, answer)


class RemoteLink(Link):
    """A worker's, or a child process's: the hub is at the other end of a channel."""

    def __init__(self, channel: Channel, pump: Pump, reactor: Reactor) -> None:
        super().__init__(make_guard(), pump)
        self._channel = channel
        self._reactor = reactor
        self._tokens = itertools.count(1)
        self._arrivals: dict[int, list[Arrival]] = {}  # for values
        self._announcements: dict[int, list[Arrival]] = {}  # for the news that there is one
        self._answers: dict[int, Callable[..., None]] = {}  # by token
        self.accept_work: Callable[[Message], None] | None = (
            None  # a worker's: everything that is no answer
        )
        self.on_closed: Callable[[], None] = _ignore
        reactor.register(channel.fileno(), self._on_event)

    def send(self, message: Message) -> None:
        with self.guard:
            self._send(message)

    def flush_references(self) -> None:
        """Tell the hub of references that were made and dropped while nothing was sent."""
        if refs.journal:
            with self.guard:
                made, dropped = self._changes()
                self._channel.send((m.REFS, made + dropped))

    def request(self, operation: str, *arguments: Any) -> Any:
        waiter = Waiter()
        answers: list[tuple[bool, Any]] = []

        def answer(ok: bool, result: Any) -> None:
            answers.append((ok, result))
            waiter.settle()

        token = next(self._tokens)
        with self.guard:
            self._answers[token] = answer
            self._send((m.REQUEST, token, operation, arguments))
        self.pump.wait(waiter)
        ok, result = answers[0]
        if not ok:
            raise result
        return result

    def _send(self, message: Message) -> None:
        channel = self._channel
        if refs.journal:
            made, dropped = self._changes()
            if made:
                channel.hold((m.REFS, made))
            channel.hold(message)
            if dropped:  # only now: the message may carry the last mention of them
                channel.hold((m.REFS, dropped))
            channel.flush()
        else:
            channel.send(message)
        if channel.congested:
            channel.drain(BACKLOG_LIMIT_BYTES)
            self._reactor.modify(channel.fileno(), writable=channel.congested)

    def _changes(self) -> tuple[list[int], list[int]]:
        """References made and references dropped since the hub was told."""
        journal = refs.journal
        made: list[int] = []
        dropped: list[int] = []
        while journal:
            change = journal.popleft()
            (made if change > 0 else dropped).append(change)
        return made, dropped

    def _subscribe(self, ids: Iterable[int], arrival: Arrival, *, value: bool) -> None:
        table = self._arrivals if value else self._announcements
        new = []
        for id in ids:
            known = table.get(id)
            if known is None:
                table[id] = [arrival]
                new.append(id)
            else:
                known.append(arrival)
        if new:
            self._send((m.WANT if value else m.WATCH, new))

    def _unsubscribe(self, ids: Iterable[int], arrival: Arrival) -> None:
        idle = []
        for id in ids:
            for table in (self._arrivals, self._announcements):
                known = table.get(id)
                if known is not None and arrival in known:
                    known.remove(arrival)
                    if not known:
                        del table[id]
            if id not in self._arrivals and id not in self._announcements:
                idle.append(id)
        if idle:
            self._send((m.UNWANT, idle))

    def _want_item(self, stream_id: int, index: int, answer: Callable[[int | None], None]) -> None:
        token = next(self._tokens)
        self._answers[token] = answer
        self._send((m.ITEM_WANTED, stream_id, index, token))

    def _on_event(self, events: int) -> None:
        closed = False
        with self.guard:
            if events & select.EPOLLOUT:
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
            for arrival in self._arrivals.pop(message[1], ()):
                arrival(message[1], message[2])
        elif kind == m.ARRIVED:
            for arrival in self._announcements.pop(message[1], ()):
                arrival(message[1], m.NONE_VALUE)
        elif kind == m.REPLY:
            self._answers.pop(message[1])(message[2], message[3])
        elif kind == m.NEXT_ITEM:
            self._answers.pop(message[1])(message[2])
        elif self.accept_work is not None:
            self.accept_work(message)


def _ignore() -> None:
    """What a link does about a hub that is gone, until somebody says otherwise."""
