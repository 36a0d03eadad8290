"""`ControllerConnection`: a process's connection to the controller, renewed when that restarts.

The same connection carries the routing table, if the process makes calls: `ReplicaLink` subscribes
with the first one.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from syncline.serve.controller.messages import Acknowledge, LoadReport, Subscribe
from syncline.serve.routing.link import LoopLink
from syncline.serve.routing.load_changes import REPORT_INTERVAL_S, LoadChanges
from syncline.serve.routing.router import Call, DeploymentRouter
from syncline.serve.wire.connection import Hello, LoopConnection, connect
from syncline.serve.wire.frames import Kind
from syncline.serve.wire.routes import Address, DeploymentId, TableUpdate

logger = logging.getLogger("syncline.serve")

RECONNECT_S = 0.05
RECONNECT_MAX_S = 1.0
_MOST_UNSENT = 100


class ControllerConnection:
    """Sends notices to the controller, and handles its notices. Used on the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: Address,
        *,
        node_id: str,
        hello: Hello,
        key: bytes,
        handlers: Mapping[type, Callable[[Any], None]],
        on_connected: Callable[[], None],
    ) -> None:
        """`handlers` by class of the message; `on_connected` runs at each new connection."""
        self._loop = loop
        self._address = address
        self._node_id = node_id
        self._hello = hello
        self._key = key
        self._handlers = dict(handlers)
        self._on_connected = on_connected
        self._connection: LoopConnection | None = None
        self._unsent: deque[object] = deque(maxlen=_MOST_UNSENT)
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.link = ReplicaLink(self, loop, node_id=node_id, hello=hello, key=key)
        """The link of the handles in this replica."""

    def open(self) -> None:
        """Connect in the background, and again whenever the connection is lost."""
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._connect())

    def notify(self, message: object) -> None:
        """Send a notice; without a connection, send it after the next one is made."""
        if self._connection is None:
            self._unsent.append(message)
        else:
            self._connection.send(Kind.NOTICE, 0, pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def handle(self, kind: type, handler: Callable[[Any], None]) -> None:
        """Add a handler."""
        self._handlers[kind] = handler

    @property
    def is_open(self) -> bool:
        """True while there is a connection, or one is made for messages before the end."""
        return self._connection is not None or (self._is_closed and bool(self._unsent))

    def close(self) -> None:
        """Close the connection after the sent messages, also if it is not made yet."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.close()
        elif self._task is not None and not self._unsent:
            self._task.cancel()

    # -- Receiver

    def on_frame(self, kind: int, call_id: int, payload: bytes) -> None:
        """Handle a message."""
        if kind != Kind.NOTICE:
            return
        message = pickle.loads(payload)
        handler = self._handlers.get(type(message))
        if handler is None:
            logger.warning("The controller sent an unknown message %r.", type(message).__name__)
        else:
            handler(message)

    def on_closed(self) -> None:
        """Connect again: the controller restarts at the same address."""
        self._connection = None
        if not self._is_closed:
            self.open()

    async def _connect(self) -> None:
        delay_s = RECONNECT_S
        while True:
            try:
                await connect(
                    self._address,
                    node_id=self._node_id,
                    hello=self._hello,
                    key=self._key,
                    on_ready=self._ready,
                )
                return
            except (OSError, TimeoutError, asyncio.TimeoutError):
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, RECONNECT_MAX_S)

    def _ready(self, connection: LoopConnection) -> ControllerConnection:
        self._connection = connection
        self._on_connected()
        self.link.reconnected()
        unsent, self._unsent = self._unsent, deque(maxlen=_MOST_UNSENT)
        for message in unsent:
            self.notify(message)
        if self._is_closed:
            connection.close()
        return self


class ReplicaLink(LoopLink):
    """The link of the handles in a replica; subscribes to the routing table at the first use."""

    def __init__(
        self,
        controller: ControllerConnection,
        loop: asyncio.AbstractEventLoop,
        *,
        node_id: str,
        hello: Hello,
        key: bytes,
    ) -> None:
        super().__init__(loop, node_id=node_id, hello=hello, key=key)
        self._controller = controller
        self.called: set[DeploymentId] = set()
        """Deployments that got calls."""
        self._is_subscribed = False
        self._changes = LoadChanges(self)
        self._report_at: asyncio.TimerHandle | None = None

    def submit(self, call: Call) -> None:
        """Send a call, now or when a replica is free."""
        self._subscribe()
        self.called.add(call.deployment)
        super().submit(call)

    def route_of(self, deployment: DeploymentId) -> DeploymentRouter | None:
        """Return the router of a deployment; None for an unknown one."""
        self._subscribe()
        return super().route_of(deployment)

    def with_replicas(self, deployment: DeploymentId, action: Callable[[list[str]], None]) -> None:
        """Call `action` with the replicas of a deployment, once all of them are connected."""
        self._subscribe()
        super().with_replicas(deployment, action)

    def reconnected(self) -> None:
        """Subscribe again, at a new controller."""
        if self._is_subscribed:
            self._changes.forget()
            self._controller.notify(Subscribe())
            self._plan_report()

    def _subscribe(self) -> None:
        if not self._is_subscribed:
            self._is_subscribed = True
            self.on_load = self._plan_report
            self._controller.handle(TableUpdate, self._update)
            self._controller.notify(Subscribe())

    def _update(self, update: TableUpdate) -> None:
        self.update(update)
        self._controller.notify(Acknowledge(version=update.version))

    def _plan_report(self) -> None:
        if self._report_at is None:
            self._report_at = self.loop.call_later(REPORT_INTERVAL_S, self._report)

    def _report(self) -> None:
        self._report_at = None
        loads = self._changes.collect()
        if loads:
            self._controller.notify(LoadReport(loads=loads))
