"""`Link`: the calls of one process, from their routers to the replicas and back.

A link has a router for each deployment, a connection to each replica, and the deadlines. It
executes the routers' instructions. Two subclasses provide sockets and timers: `LoopLink` in
processes that run serve's event loop (proxy, replicas), `thread_link.ThreadLink` in programs.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Protocol

from syncline.records import dataclass
from syncline.serve.exceptions import DeploymentUnavailableError
from syncline.serve.monitoring.histogram import Samples, Times
from syncline.serve.replica import ledger
from syncline.serve.routing.request_router_driver import Cancellable, RequestRouterDriver
from syncline.serve.routing.router import (
    Ask,
    Call,
    DeploymentRouter,
    Fail,
    Instruction,
    Lost,
    Send,
    death_error,
)
from syncline.serve.wire import shared_values
from syncline.serve.wire.connection import Hello, LoopConnection, connect
from syncline.serve.wire.frames import Kind
from syncline.serve.wire.loop_spinner import LoopSpinner
from syncline.serve.wire.routes import DeploymentId, DeploymentRoute, ReplicaRoute, TableUpdate

logger = logging.getLogger("syncline.serve")

DEADLINE_STEP_S = 0.025
"""Resolution of deadlines."""
RECONNECT_S = 0.05
"""Seconds until the second attempt to connect to a replica."""
RECONNECT_MAX_S = 2.0
CAUSE_S = 1.0
"""Seconds that calls of a dead replica wait for the controller to send the cause of its death."""
TABLE_S = 10.0
"""Seconds to wait for the first routing table, and for connections to all replicas."""
_CALL_ID_BITS = 40
_MOST_WAITS = 100_000

_FINAL = frozenset(map(int, (Kind.RESPONSE, Kind.VALUE, Kind.END, Kind.ERROR, Kind.ABORT)))


class Connection(Protocol):
    """The sending side of a connection to a replica."""

    def send(self, kind: int, call_id: int = 0, *parts: bytes | memoryview) -> None:
        """Send a frame."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, kw_only=True)
class LinkStatistics:
    """Counters of a link."""

    calls: int
    """Unfinished calls."""
    connections: int
    deployments: int


class RequestTimeoutError(TimeoutError):
    """The deadline of a call passed."""


class Link(ABC):
    """Calls of one process. Methods run on one thread, or under one lock."""

    def __init__(self, node_id: str, clock: Callable[[], float]) -> None:
        self._node_id = node_id
        self._clock = clock
        self._calls: dict[int, Call] = {}
        self._routers: dict[DeploymentId, DeploymentRouter] = {}
        self._connections: dict[str, Connection] = {}
        self._connecting: set[str] = set()  # replicas to which a connection is made
        self._wanted: dict[str, ReplicaRoute] = {}  # replicas in the table
        self._links: dict[str, DeploymentId] = {}  # replica id -> its deployment
        self._lost: dict[str, list[Lost]] = {}  # replica id -> calls that wait for the cause
        self._departures: dict[str, str] = {}  # connected replicas that left the table, and why
        self._drivers: dict[DeploymentId, RequestRouterDriver] = {}
        self._early: list[Call] = []  # calls before the first table
        self._awaiting: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._table_version = -1  # before the first table
        caller = secrets.randbits(64 - _CALL_ID_BITS) << _CALL_ID_BITS
        self._new_id = itertools.count(caller | 1).__next__
        self._deadlines: dict[int, dict[int, Call]] = {}  # by step
        self._waits: dict[DeploymentId, Samples] = {}  # seconds of calls that were queued
        self._ticks = False
        self._closed: Exception | None = None
        self.on_load: Callable[[], None] = lambda: None
        """Called when calls begin to wait or the number of calls changes."""

    # -- for callers

    def submit(self, call: Call) -> None:
        """Send a call, now or when a replica is free; its answer goes to `call`."""
        call.call_id = call_id = self._new_id()
        if self._closed is not None:
            call.on_failed(self._closed)
            return
        self._calls[call_id] = call
        if call.deadline is not None:
            self._watch_deadline(call, call.deadline)
        router = self._routers.get(call.deployment)
        if router is None:
            self._submit_unknown(call)
            return
        instructions = router.submit(call, self._clock())
        if instructions:
            self._execute(instructions)
        else:
            call.queued_at = self._clock()
            self._plan_tick()
        self.on_load()

    def cancel(self, call: Call) -> None:
        """Drop a call: its answer is ignored, and its replica cancels it."""
        if self._calls.pop(call.call_id, None) is None:
            return
        self._forget_deadline(call)
        router = self._routers.get(call.deployment)
        if router is not None:
            self._execute(router.cancelled(call))
        elif call in self._early:
            self._early.remove(call)
        self.on_load()

    def send(self, call: Call, kind: int, *parts: bytes | memoryview) -> None:
        """Send a frame to the replica that has the call; drop it if none has."""
        connection = self._connections.get(call.replica_id)
        if connection is not None:
            connection.send(kind, call.call_id, *parts)

    @abstractmethod
    def run(self, action: Callable[[], object]) -> None:
        """Call `action` under the rules of all methods, from any thread, now or soon."""

    def loads(self) -> dict[DeploymentId, tuple[int, dict[str, int]]]:
        """Return the queued calls and the calls in flight by replica of each deployment."""
        return {id: (router.queued, router.ongoing()) for id, router in self._routers.items()}

    def route_of(self, deployment: DeploymentId) -> DeploymentRouter | None:
        """Return the router of a deployment; None for an unknown one."""
        return self._routers.get(deployment)

    def running_replicas(self, deployment: DeploymentId) -> list[str]:
        """Return the connected replicas of a deployment."""
        return sorted(self._replicas_of(deployment) & self._connections.keys())

    def with_replicas(self, deployment: DeploymentId, action: Callable[[list[str]], None]) -> None:
        """Call `action` with the replicas of a deployment, once all of them are connected.

        After `TABLE_S`, it is called with those that are connected.
        """
        self._when(
            lambda: self._connections.keys() >= self._replicas_of(deployment),
            lambda: action(self.running_replicas(deployment)),
        )

    def when_updated(self, version: int, action: Callable[[], None]) -> None:
        """Call `action` once this version of the routing table is applied, or after `TABLE_S`."""
        self._when(lambda: self._table_version >= version, action)

    def _when(self, condition: Callable[[], bool], action: Callable[[], None]) -> None:
        """Call `action` once there is a routing table and a condition holds."""
        waiting = (condition, action)
        self._awaiting.append(waiting)
        self._end_waits()
        if waiting in self._awaiting:
            self._call_later(TABLE_S, partial(self._end_wait, waiting))

    def _end_waits(self) -> None:
        """Call the actions whose conditions hold."""
        if self._table_version >= 0:
            for waiting in list(self._awaiting):
                if waiting[0]():
                    self._end_wait(waiting)

    def _end_wait(self, waiting: tuple[Callable[[], bool], Callable[[], None]]) -> None:
        if waiting in self._awaiting:
            self._awaiting.remove(waiting)
            waiting[1]()

    def _replicas_of(self, deployment: DeploymentId) -> set[str]:
        """Return the replicas of a deployment in the table."""
        return {id for id in self._wanted if self._links[id] == deployment}

    def take_waits(self) -> dict[DeploymentId, Times]:
        """Return the seconds that calls waited for a replica since the last call, by deployment.

        Calls that were sent immediately are left out.
        """
        return {id: waits.take() for id, waits in self._waits.items() if waits}

    def statistics(self) -> LinkStatistics:
        """Return the current counts."""
        return LinkStatistics(
            calls=len(self._calls),
            connections=len(self._connections),
            deployments=len(self._routers),
        )

    # -- the table

    def update(self, update: TableUpdate) -> None:
        """Apply a change of the routing table."""
        now = self._clock()
        for route in update.deployments:
            router = self._routers.get(route.id)
            if router is None:
                router = self._routers[route.id] = self._new_router(route)
            else:
                if router.route.request_router != route.request_router:
                    router = self._replace_router(router, route)
                self._execute(router.update(route, now))
            current = {replica.replica_id: replica for replica in route.replicas}
            for id in [id for id, owner in self._links.items() if owner == route.id]:
                if id in self._wanted and id not in current:
                    self._remove_replica(id, router)
            for id, replica in current.items():
                is_new = id not in self._wanted
                self._wanted[id] = replica
                if is_new:
                    self._links[id] = route.id
                    self._add_replica(replica, router)
        removed = set(update.removed)
        if update.is_complete:
            removed |= self._routers.keys() - {route.id for route in update.deployments}
        for deployment in removed:
            self._remove_deployment(deployment)
        for id, cause in update.departures.items():
            if id in self._lost:
                self._fail_lost(id, cause)
            elif id in self._connections:
                self._departures[id] = cause
        self._table_version = update.version
        early, self._early = self._early, []
        for call in early:
            if self._calls.pop(call.call_id, None) is not None:
                self.submit(call)
        self._end_waits()
        self.on_load()

    def close(self, error: Exception) -> None:
        """End all calls with an error and close the connections."""
        self._closed = error
        for router in self._routers.values():
            self._execute(router.closed(error))
        for id in list(self._lost):
            self._fail_lost(id, "its process ended")
        for call in self._early:
            self._fail(call, error)
        self._early.clear()
        self._wanted.clear()
        for waiting in list(self._awaiting):
            self._end_wait(waiting)
        for driver in self._drivers.values():
            driver.close()
        self._drivers.clear()
        for connection in list(self._connections.values()):
            connection.close()

    def _submit_unknown(self, call: Call) -> None:
        if self._table_version >= 0:
            known = sorted(map(str, self._routers))
            self._fail(
                call,
                DeploymentUnavailableError(
                    call.deployment,
                    f"it does not exist (deployments: {', '.join(known) or 'none'})",
                ),
            )
        else:
            self._early.append(call)
            self._call_later(TABLE_S, partial(self._give_up, call))

    def _give_up(self, call: Call) -> None:
        if call in self._early:
            self._early.remove(call)
            reason = f"serve's controller sent no routing table within {TABLE_S:.0f} s"
            self._fail(call, DeploymentUnavailableError(call.deployment, reason))

    def _add_replica(self, replica: ReplicaRoute, router: DeploymentRouter) -> None:
        """Use a replica of the table, which may have left it before."""
        id = replica.replica_id
        self._departures.pop(id, None)
        if id in self._connections:
            self._execute(router.replica_added(id, self._clock()))
        elif id not in self._connecting:
            self._connecting.add(id)
            self._connect(replica, RECONNECT_S)

    def _remove_replica(self, replica_id: str, router: DeploymentRouter) -> None:
        del self._wanted[replica_id]
        self._execute(router.replica_removed(replica_id, self._clock()))
        if replica_id not in self._connections:
            del self._links[replica_id]

    def _remove_deployment(self, deployment: DeploymentId) -> None:
        """Refuse waiting and new calls; those in flight end on their draining replicas."""
        router = self._routers.get(deployment)
        if router is None:
            return
        for id in [id for id, owner in self._links.items() if owner == deployment]:
            if id in self._wanted:
                self._remove_replica(id, router)
        if any(router.ongoing().values()):
            deleted = DeploymentRoute(id=deployment, unavailable="it was deleted")
            self._execute(router.update(deleted, self._clock()))
            return
        del self._routers[deployment]
        self._execute(router.closed(DeploymentUnavailableError(deployment, "it was deleted")))
        self._close_driver(deployment)
        for id in [id for id, owner in self._links.items() if owner == deployment]:
            self._wanted.pop(id, None)
            if id not in self._connections:
                del self._links[id]

    # -- custom request routers

    def decide(
        self, driver: RequestRouterDriver, step: Callable[[float], list[Instruction]]
    ) -> None:
        """Execute a step of the router that `driver` has; for drivers."""
        if self._drivers.get(driver.deployment) is driver:
            self._execute(step(self._clock()))
            self._plan_tick()
            self.on_load()

    def _new_router(self, route: DeploymentRoute) -> DeploymentRouter:
        if route.request_router is None:
            return DeploymentRouter(route)
        driver = RequestRouterDriver(self, route, self._node_id)
        self._drivers[route.id] = driver
        return driver.router

    def _replace_router(self, old: DeploymentRouter, route: DeploymentRoute) -> DeploymentRouter:
        """Continue with another request router."""
        self._close_driver(route.id)
        router = self._routers[route.id] = self._new_router(route)
        router.take_over(old)
        return router

    def _close_driver(self, deployment: DeploymentId) -> None:
        driver = self._drivers.pop(deployment, None)
        if driver is not None:
            driver.close()

    @abstractmethod
    def start_task(self, work: Coroutine[object, object, None]) -> Cancellable:
        """Run a coroutine of a request router on an event loop."""

    # -- replicas

    def _connected(self, replica: ReplicaRoute, connection: Connection) -> None:
        """Handle a connection that is ready."""
        id = replica.replica_id
        self._connecting.discard(id)
        if id not in self._wanted:
            connection.close()
            return
        self._connections[id] = connection
        router = self._routers[self._links[id]]
        self._execute(router.replica_added(id, self._clock()))
        self._end_waits()

    def _not_connected(self, replica: ReplicaRoute, delay_s: float, error: Exception) -> None:
        """Try again later, as long as the replica is in the table."""
        if replica.replica_id in self._wanted:
            if delay_s >= RECONNECT_MAX_S:
                logger.warning("No connection to replica %s: %s", replica.replica_id, error)
            again = partial(self._connect, replica, min(2 * delay_s, RECONNECT_MAX_S))
            self._call_later(delay_s, again)
        else:
            self._connecting.discard(replica.replica_id)
            self._links.pop(replica.replica_id, None)

    def _disconnected(self, replica: ReplicaRoute) -> None:
        """Handle the end of a connection, which is usually the end of the replica."""
        id = replica.replica_id
        if self._connections.pop(id, None) is None:
            return
        router = self._routers.get(self._links[id])
        cause = self._departures.pop(id, None)
        if router is not None:
            is_near = replica.address.node_id == self._node_id
            began = ledger.read(replica.ledger_path) if is_near else None
            self._execute(router.replica_lost(id, began, self._clock()))
        if cause is not None:
            self._fail_lost(id, cause)
        elif id in self._lost:  # the controller is about to send the cause
            self._call_later(CAUSE_S, partial(self._fail_lost, id, "its process ended"))
        if id in self._wanted:  # alive after all, or not yet removed from the table
            self._connecting.add(id)
            self._call_later(RECONNECT_S, partial(self._connect, replica, 2 * RECONNECT_S))
        else:
            del self._links[id]

    def _on_frame(self, replica_id: str, kind: int, call_id: int, payload: bytes) -> None:
        call = self._calls.get(call_id)
        if kind in _FINAL:
            if call is not None:
                del self._calls[call_id]
                if call.bucket >= 0:
                    self._forget_deadline(call)
                call.on_frame(kind, payload)
            elif kind == Kind.VALUE:
                shared_values.discard(payload)
            router = self._routers.get(self._links[replica_id])
            if router is not None:
                instructions = router.answered(replica_id, call_id, self._clock())
                if instructions:
                    self._execute(instructions)
                self.on_load()
        elif kind == Kind.BUSY or kind == Kind.FREE:
            router = self._routers.get(self._links[replica_id])
            if router is not None:
                step = router.busy if kind == Kind.BUSY else None
                now = self._clock()
                self._execute(
                    step(replica_id, call_id, now) if step else router.free(replica_id, now)
                )
                self._plan_tick()
        elif call is not None:
            call.on_frame(kind, payload)

    def _execute(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            call = instruction.call
            if isinstance(instruction, Send):
                if call.call_id not in self._calls:  # cancelled before it could be sent again
                    router = self._routers[call.deployment]
                    self._execute(
                        router.answered(instruction.replica_id, call.call_id, self._clock())
                    )
                    continue
                self._connections[instruction.replica_id].send(call.kind, call.call_id, *call.parts)
                if call.queued_at:
                    self._note_wait(call)
                call.on_started(instruction.replica_id)
            elif isinstance(instruction, Fail):
                self._fail(call, instruction.error)
            elif isinstance(instruction, Lost):
                self._lost.setdefault(instruction.replica_id, []).append(instruction)
            elif isinstance(instruction, Ask):
                call.queued_at = call.queued_at or self._clock()
                self._drivers[call.deployment].ask(call)
            else:
                connection = self._connections.get(instruction.replica_id)
                if connection is not None:
                    connection.send(Kind.CANCEL, call.call_id)

    def _note_wait(self, call: Call) -> None:
        waits = self._waits.get(call.deployment)
        if waits is None:
            waits = self._waits[call.deployment] = Samples()
        if len(waits) < _MOST_WAITS:  # programs may not take them
            waits.append(self._clock() - call.queued_at)
        call.queued_at = 0.0

    def _fail_lost(self, replica_id: str, cause: str) -> None:
        """End the calls that a dead replica had begun, now that the cause is known."""
        for lost in self._lost.pop(replica_id, ()):
            self._fail(lost.call, death_error(lost, cause))

    def _fail(self, call: Call, error: Exception) -> None:
        if self._calls.pop(call.call_id, None) is not None:
            self._forget_deadline(call)
            call.on_failed(error)

    # -- time

    def _watch_deadline(self, call: Call, deadline: float) -> None:
        call.bucket = bucket = int(deadline / DEADLINE_STEP_S) + 1
        calls = self._deadlines.get(bucket)
        if calls is None:
            calls = self._deadlines[bucket] = {}
        calls[call.call_id] = call
        self._plan_tick()

    def _forget_deadline(self, call: Call) -> None:
        calls = self._deadlines.get(call.bucket)
        if calls is not None:
            calls.pop(call.call_id, None)
            if not calls:
                del self._deadlines[call.bucket]
        call.bucket = -1

    def _plan_tick(self) -> None:
        if not self._ticks:
            self._ticks = True
            self._call_later(DEADLINE_STEP_S, self._tick)

    def _tick(self) -> None:
        self._ticks = False
        now = self._clock()
        step = int(now / DEADLINE_STEP_S)
        for bucket in sorted(each for each in self._deadlines if each <= step):
            for call in list(self._deadlines.get(bucket, {}).values()):
                self._expire(call)
        waits = False
        for router in list(self._routers.values()):
            moment = router.next_moment()
            if moment is not None:
                waits = True
                if moment <= now:
                    self._execute(router.tick(now))
        if self._deadlines or waits:
            self._plan_tick()

    def _expire(self, call: Call) -> None:
        self.cancel(call)
        call.on_failed(RequestTimeoutError())

    # -- sockets and timers

    @abstractmethod
    def _connect(self, replica: ReplicaRoute, delay_s: float) -> None:
        """Connect in the background, and call `_connected` or `_not_connected(…, delay_s, …)`."""

    @abstractmethod
    def _call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call `action` once, under the rules of all methods."""


class LoopLink(Link):
    """The link of a process that runs serve's event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, node_id: str, hello: Hello, key: bytes
    ) -> None:
        super().__init__(node_id, loop.time)
        self.loop = loop
        """The loop; all methods are called on its thread."""
        self._hello = hello
        self._key = key
        self._spinner = LoopSpinner(loop)
        self._tasks: set[asyncio.Task[None]] = set()

    def enter(self) -> None:
        """Record that a coroutine of the loop begins to await an answer."""
        if len(self._calls) == 1:  # others would find the processor busy
            self._spinner.start()

    def leave(self) -> None:
        """Record that a coroutine no longer awaits an answer."""
        self._spinner.stop()

    def run(self, action: Callable[[], object]) -> None:
        """Call `action` on the loop's thread; immediately if this is the thread."""
        if asyncio._get_running_loop() is self.loop:
            action()
        else:
            self.loop.call_soon_threadsafe(action)

    def _connect(self, replica: ReplicaRoute, delay_s: float) -> None:
        task = self.loop.create_task(self._open(replica, delay_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, replica: ReplicaRoute, delay_s: float) -> None:
        try:
            await connect(
                replica.address,
                node_id=self._node_id,
                hello=self._hello,
                key=self._key,
                on_ready=lambda connection: _LoopReceiver(self, replica, connection),
            )
        except (OSError, TimeoutError, asyncio.TimeoutError) as error:
            self._not_connected(replica, delay_s, error)

    def _call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.loop.call_later(delay_s, action)

    def start_task(self, work: Coroutine[object, object, None]) -> Cancellable:
        """Run a coroutine on the link's loop."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _LoopReceiver:
    """Passes the frames of one replica to the link."""

    __slots__ = ("_id", "_link", "_replica")

    def __init__(self, link: Link, replica: ReplicaRoute, connection: LoopConnection) -> None:
        self._link = link
        self._replica = replica
        self._id = replica.replica_id
        link._connected(replica, connection)

    def on_frame(self, kind: int, call_id: int, payload: bytes) -> None:
        """Pass a frame on."""
        self._link._on_frame(self._id, kind, call_id, payload)

    def on_closed(self) -> None:
        """Pass the end on."""
        self._link._disconnected(self._replica)
