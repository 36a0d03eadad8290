"""`ThreadLink`: the link of a program, whose threads share it.

A thread that submits a call writes it to the replica's socket itself, and a thread that waits for
an answer reads the sockets (`core.embedded.shared_reactor`), so that a call needs no switch between
threads. While no thread waits, a background thread reads.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial

from syncline.core.embedded.interrupts import make_guard
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.shared_reactor import SharedReactor, Waiter
from syncline.core.event_loops import cancel_all
from syncline.serve.controller.messages import Acknowledge, LoadReport, Subscribe
from syncline.serve.routing.link import RECONNECT_MAX_S, RECONNECT_S, Link
from syncline.serve.routing.load_changes import REPORT_INTERVAL_S, LoadChanges
from syncline.serve.routing.loop_reader import LoopReader
from syncline.serve.routing.request_router_driver import Cancellable
from syncline.serve.routing.router import Call
from syncline.serve.wire.connection import Hello
from syncline.serve.wire.frames import Kind
from syncline.serve.wire.routes import Address, ReplicaRoute, TableUpdate
from syncline.serve.wire.spinning import SpinLimit
from syncline.serve.wire.thread_connection import SocketConnection, open_socket

logger = logging.getLogger("syncline.serve")

READ_ALL_S = 0.005
"""Seconds after which a thread that reads the socket of its call reads all of them."""


class ThreadLink(Link):
    """The link of a program. All methods are thread-safe."""

    def __init__(
        self,
        controller: Address,
        *,
        node_id: str,
        hello: Hello,
        key: bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(node_id, clock)
        self._controller = controller
        self._hello = hello
        self._key = key
        self.guard = make_guard()
        """Lock of the link and its calls."""
        self._reactor = Reactor(clock)
        self._shared = SharedReactor(self._reactor, name="serve-handles", on_idle=self._on_idle)
        self._subscription: SocketConnection | None = None
        self._load_changes = LoadChanges(self)
        self._report_planned = False
        self._reads_all_at = 0.0
        self.spins = SpinLimit()
        """The spins of threads that wait for answers."""
        self._readers: dict[int, LoopReader] = {}  # by thread
        self._loop: asyncio.AbstractEventLoop | None = None  # of custom request routers
        self.on_load = self._plan_report

    def start(self) -> None:
        """Start the background thread and subscribe to the routing table."""
        self._shared.start()
        self._subscribe(RECONNECT_S)

    def submit(self, call: Call) -> None:
        """Send a call, now or when a replica is free."""
        with self.guard:
            super().submit(call)

    def cancel(self, call: Call) -> None:
        """Drop a call."""
        with self.guard:
            super().cancel(call)

    def send(self, call: Call, kind: int, *parts: bytes | memoryview) -> None:
        """Send a frame to the replica that has the call."""
        with self.guard:
            super().send(call, kind, *parts)

    def run(self, action: Callable[[], object]) -> None:
        """Call `action` now, under the link's lock."""
        with self.guard:
            action()

    def receiver(self, call: Call) -> Callable[[], None] | None:
        """Return a function that handles the frames of a call's replica that have arrived.

        None if this thread had better `wait`: another thread reads, the call was not sent, or it is
        time to read all sockets and to look after the timers.
        """
        now = self._clock()
        connection = self._connections.get(call.replica_id)
        if not isinstance(connection, SocketConnection):
            return None
        if now >= self._reads_all_at or not self._shared.visit():
            self._reads_all_at = now + READ_ALL_S
            return None
        return connection.receive

    def wait(self, waiter: Waiter, timeout_s: float | None) -> bool:
        """Wait until `waiter` is done, reading the answers; return False after the timeout."""
        return self._shared.wait(waiter, timeout_s)

    def reader(self, loop: asyncio.AbstractEventLoop) -> LoopReader:
        """Return the reader of the event loop that runs in this thread."""
        thread = threading.get_ident()
        reader = self._readers.get(thread)
        if reader is None or reader.loop is not loop:
            reader = self._readers[thread] = LoopReader(loop, self._shared)
        return reader

    def _on_idle(self) -> None:
        """Read what event loops leave unread, because something blocks them."""
        if not self._closed:
            self._shared.poll()

    def close(self, error: Exception) -> None:
        """End all calls with an error, close the connections and the background thread."""
        with self.guard:
            super().close(error)
            if self._subscription is not None:
                self._subscription.close()
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._shared.close()
        self._reactor.close()

    def start_task(self, work: Coroutine[object, object, None]) -> Cancellable:
        """Run a coroutine on the event loop of a thread, which starts with the first one."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._run_loop, name="serve-router", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _run_loop(self) -> None:
        loop = self._loop
        assert loop is not None
        loop.run_forever()
        loop.run_until_complete(cancel_all())
        loop.close()

    # -- the controller

    def _subscribe(self, delay_s: float) -> None:
        def opened(connection: SocketConnection) -> None:
            self._subscription = connection
            self._notify(Subscribe())
            self._load_changes.forget()
            self._plan_report()

        def failed(error: OSError) -> None:
            if delay_s >= RECONNECT_MAX_S:
                logger.warning("The controller of serve cannot be reached: %s", error)
            again = min(2 * delay_s, RECONNECT_MAX_S)
            self._call_later(delay_s, lambda: self._subscribe(again))

        self._open(
            self._controller, opened, failed, on_frame=self._on_notice, on_closed=self._unsubscribed
        )

    def _on_notice(self, kind: int, call_id: int, payload: bytes) -> None:
        message = pickle.loads(payload) if kind == Kind.NOTICE else None
        if isinstance(message, TableUpdate):
            self.update(message)
            self._notify(Acknowledge(version=message.version))

    def _unsubscribed(self) -> None:
        self._subscription = None
        if self._closed is None:
            self._call_later(RECONNECT_S, lambda: self._subscribe(2 * RECONNECT_S))

    def _notify(self, message: object) -> None:
        if self._subscription is not None:
            self._subscription.send(Kind.NOTICE, 0, pickle.dumps(message, 5))

    def _plan_report(self) -> None:
        if not self._report_planned:
            self._report_planned = True
            self._call_later(REPORT_INTERVAL_S, self._report)

    def _report(self) -> None:
        self._report_planned = False
        loads = self._load_changes.collect()
        if loads and self._subscription is not None:
            self._notify(LoadReport(loads=loads))
            self._plan_report()  # until nothing changes any more

    # -- sockets and timers

    def _connect(self, replica: ReplicaRoute, delay_s: float) -> None:
        self._open(
            replica.address,
            lambda connection: self._connected(replica, connection),
            lambda error: self._not_connected(replica, delay_s, error),
            on_frame=partial(self._on_frame, replica.replica_id),
            on_closed=lambda: self._disconnected(replica),
        )

    def _open(
        self,
        address: Address,
        opened: Callable[[SocketConnection], None],
        failed: Callable[[OSError], None],
        *,
        on_frame: Callable[[int, int, bytes], None],
        on_closed: Callable[[], None],
    ) -> None:
        """Connect in a thread: the handshake waits for the other process."""

        def run() -> None:
            try:
                connection = open_socket(
                    address, node_id=self._node_id, hello=self._hello, key=self._key
                )
            except OSError as error:
                with self.guard:
                    if self._closed is None:
                        failed(error)
                return
            with self.guard:
                if self._closed is None:
                    opened(
                        SocketConnection(
                            connection,
                            self._reactor,
                            on_frame=on_frame,
                            on_closed=on_closed,
                            guard=self.guard,
                        )
                    )
                else:
                    connection.close()

        threading.Thread(target=run, name="serve-connect", daemon=True).start()

    def _call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        def run() -> None:
            with self.guard:
                if self._closed is None:
                    action()

        self._reactor.call_later(delay_s, run)
