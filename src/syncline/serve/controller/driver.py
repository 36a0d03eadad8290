"""`Controller`: the driver of the state machine, on one event loop.

It converts messages, ends of processes and time to events, and executes the instructions: it
creates and ends actors, sends messages, publishes the routing table, and saves snapshots. A
snapshot is stored before the instructions that follow from its state are executed, so that a
restarted controller knows all existing processes and every target confirmed to a program.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import pickle
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from syncline.core import serialization
from syncline.core.api import available_resources, ensure_engine
from syncline.core.state_machine import Dispatcher, on
from syncline.serve.controller import events as e
from syncline.serve.controller import messages as m
from syncline.serve.controller import requests, views
from syncline.serve.controller.actor_starts import (
    PROXY,
    REPLICA,
    Session,
    group_name,
    proxy_start,
    replica_start,
)
from syncline.serve.controller.actors import ServeActors, available_text, is_lacking
from syncline.serve.controller.deployment_actor_driver import DeploymentActorDriver
from syncline.serve.controller.deployment_actor_state import ActorState
from syncline.serve.controller.events import Event, Instruction
from syncline.serve.controller.listening_sockets import ListeningSockets
from syncline.serve.controller.replica_set import KILL_MARGIN_S
from syncline.serve.controller.rollout import PLACE, demand, has_resources
from syncline.serve.controller.snapshot import Snapshot, SnapshotWriter
from syncline.serve.controller.state import ControllerMachine
from syncline.serve.exceptions import RayServeException
from syncline.serve.logging_config import LoggingConfig
from syncline.serve.monitoring.reports import ProxyReport, RecordTo, ReplicaReport
from syncline.serve.proxy.listening import fd_path
from syncline.serve.wire import shared_values
from syncline.serve.wire.connection import Hello, Listener, LoopConnection
from syncline.serve.wire.frames import Kind
from syncline.serve.wire.routes import Address
from syncline.serve.wire.values import pack_failure

logger = logging.getLogger("syncline.serve")

DRAIN_PROXY_S = 30.0
"""Seconds for a stopping proxy to finish its requests."""
NODES_S = 5.0
"""Seconds between queries of the nodes of a cluster."""
DETAILS_S = 1.0
"""Seconds between records of the state."""
SAVE_SHARE = 0.5
"""Maximum fraction of the time for snapshots; events are batched until the next one."""
SWEEP_S = 5.0
"""Seconds between the end of a connection and the removal of the files of its dead process.

Until then its peers can read the values that it has sent.
"""
SAVE_AGAIN_S = 1.0
"""Seconds before storing a failed snapshot is retried."""
DRAIN_UNKNOWN_S = 20.0
"""Seconds for an unknown replica to finish its calls."""
RECENT_EVENTS = 500
_LEVELS = {"debug": logging.DEBUG, "info": logging.DEBUG, "warning": logging.WARNING}


class Recorder(Protocol):
    """Writes the record of the session; called on the loop, must not block."""

    path: str
    """The run directory."""

    def event(self, event: e.RecordEvent) -> None:
        """Record an event."""

    def report(self, report: ReplicaReport | ProxyReport) -> None:
        """Record the statistics of a process."""

    def details(self, details: m.ServeDetails) -> None:
        """Record the state."""

    def record_to(self, logging_config: LoggingConfig | None = None) -> RecordTo:
        """Return the message that tells a proxy where the record is."""


class Peer:
    """A connected process: replica, proxy or caller."""

    def __init__(self, controller: Controller, connection: LoopConnection, number: int) -> None:
        hello = connection.peer
        assert hello is not None
        self.hello = hello
        self.name = f"{hello.role} {hello.id} (connection {number})"
        self.is_closed = False
        self._controller = controller
        self._connection = connection

    def notify(self, payload: bytes) -> None:
        """Send a pickled notice."""
        self._connection.send(Kind.NOTICE, 0, payload)

    def reply(self, call_id: int, value: object) -> None:
        """Send the reply to a request."""
        self._connection.send(Kind.REPLY, call_id, _pickled(value))

    def fail(self, call_id: int, error: BaseException) -> None:
        """Send the error of a request."""
        self._connection.send(Kind.FAILURE, call_id, pack_failure(error))

    def on_frame(self, kind: int, call_id: int, payload: bytes) -> None:
        """Handle a notice or a request."""
        if kind == Kind.NOTICE:
            self._controller.on_notice(self, pickle.loads(payload))
        elif kind == Kind.REQUEST:
            self._controller.on_request(self, call_id, payload)

    def on_closed(self) -> None:
        """Handle the end of the connection."""
        self.is_closed = True
        self._controller.on_disconnected(self)


class Controller(Dispatcher[Instruction, None], handles=Instruction):
    """The controller of one session. Used on its loop's thread.

    Args:
        loop: Its event loop.
        snapshots: Where it saves, and finds what an earlier controller saved.
        directory: Directory of the sockets of a new session.
        clock: Monotonic seconds.
        recorder: Writes the record of the session.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        snapshots: SnapshotWriter,
        directory: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        recorder: Recorder | None = None,
    ) -> None:
        engine = ensure_engine()
        self._loop = loop
        self._clock = clock
        self._recorder = recorder
        self._snapshots = snapshots
        snapshot = snapshots.load() or Snapshot(
            key=secrets.token_bytes(32), directory=str(directory)
        )
        self._restored = snapshot.state
        self.key = snapshot.key
        self._directory = snapshot.directory
        self._node_id = engine.runtime_info().node_id
        self._is_cluster = engine.outlives_driver
        self._host = engine.node_address() if self._is_cluster else None
        self._actors = ServeActors(loop, self)
        self._deployment_actors = DeploymentActorDriver(loop, self._actors, self.handle)
        self._machine = ControllerMachine(
            head_node=self._node_id,
            new_suffix=lambda: secrets.token_hex(4),
            load_policy=serialization.unpack,
            wall_clock=time.time,
        )
        self._waiters = requests.Waiters(self._machine)
        self._listener = Listener(Hello(role="controller", id="", pid=0), self.key, self._accept)
        socket_path = f"{self._directory}/controller.sock"
        self._sockets = ListeningSockets(loop, fd_path(socket_path))
        self._socket_path = socket_path
        self._peers: dict[str, Peer] = {}
        self._subscribers: dict[str, Peer] = {}
        self._processes: dict[str, Peer] = {}  # by replica or proxy id
        self._drains: dict[str, bytes] = {}  # drain messages for processes that will connect
        self._numbers = itertools.count(1)
        self._will_settle = False
        self._has_changed = True  # since the state was recorded
        self._timer: asyncio.TimerHandle | None = None
        self._save_timer: asyncio.TimerHandle | None = None
        self._saved_at = -1e9
        self._save_s = 0.0
        self._is_unsaved = False  # True after a snapshot that could not be stored
        self.recent: deque[str] = deque(maxlen=RECENT_EVENTS)

    # -- life

    async def start(self) -> Address:
        """Listen and, after a restart, continue from the snapshot."""
        saved = self._restored
        instructions = [] if saved is None else self._machine.restore(saved, self._clock())
        self._save()
        self._resume_listening()
        address = await self._listener.start(
            self._socket_path, node_id=self._node_id, host=self._host
        )
        if saved is not None:
            logger.warning("The controller of serve restarted and continues.")
            self._attach(_started(instructions))
            self._execute_all(instructions)
        if self._is_cluster:
            self._watch_nodes()
        self._plan_wake()
        if self._recorder is not None:
            self._record_details(self._recorder)
        return address

    def _resume_listening(self) -> None:
        """After a restart, take the listening socket back from a proxy on this node."""
        fleet = self._machine.proxies
        nodes = {proxy.node_id for proxy in fleet.proxies.values()}
        if fleet.options is not None and self._node_id in nodes:
            self._sockets.resume(fleet.options.http)

    def _record_details(self, recorder: Recorder) -> None:
        """Record the state now and in every second with a change."""
        if self._has_changed:
            self._has_changed = False
            recorder.details(views.serve_details(self._machine, now=self._clock(), events=()))
        self._loop.call_later(DETAILS_S, self._record_details, recorder)

    def _attach(self, new: set[str]) -> None:
        """Watch the actors of the previous controller; `new` ones are not started yet."""
        for deployment in self._machine.deployments():
            for replica in deployment.replicas.values():
                if replica.id not in new:
                    config, gang = replica.version.target.config, replica.gang
                    seen = None if gang is None else gang.context(replica.id)
                    group = group_name(replica.id, config, seen)
                    self._actors.attach(REPLICA + replica.id, group)
            for actor in deployment.actors.by_id.values():
                if actor.id not in new and actor.state is not ActorState.WAITING:
                    self._deployment_actors.attach(actor.id)
        self._deployment_actors.kill_unknown()
        for proxy_id in self._machine.proxies.proxies:
            if proxy_id not in new:
                self._actors.attach(PROXY + proxy_id)
        for prefix in (REPLICA, PROXY):
            self._actors.find_unknown(prefix, self._stop_unknown)

    def _stop_unknown(self, name: str) -> None:
        """Drain a process that is missing in the snapshot because storing it had failed.

        Callers may have its address until they get the routing table of this controller.
        """
        logger.warning("Stopping actor %s, which is unknown to the controller.", name)
        is_replica = name.startswith(REPLICA)
        timeout_s = DRAIN_UNKNOWN_S if is_replica else DRAIN_PROXY_S
        message = m.Drain(timeout_s=timeout_s) if is_replica else m.DrainProxy(timeout_s=timeout_s)
        self._actors.attach(name, name if is_replica else None)
        self._send_drain(name.removeprefix(REPLICA).removeprefix(PROXY), _pickled(message))
        self._loop.call_later(timeout_s + KILL_MARGIN_S, self._actors.kill, name)

    def close(self) -> None:
        """Close the sockets and remove the files."""
        for timer in (self._timer, self._save_timer):
            if timer is not None:
                timer.cancel()
        self._sockets.close()
        self._listener.close()
        self._actors.close()
        self._snapshots.clear()

    # -- connections

    def _accept(self, connection: LoopConnection) -> Peer:
        peer = Peer(self, connection, next(self._numbers))
        self._peers[peer.name] = peer
        if peer.hello.role in ("replica", "proxy"):
            self._processes[peer.hello.id] = peer
            if peer.hello.role == "proxy" and self._recorder is not None:
                options = self._machine.proxies.options
                logs = options.logging_config if options is not None else None
                peer.notify(_pickled(self._recorder.record_to(logs)))
            drain = self._drains.pop(peer.hello.id, None)
            if drain is not None:
                peer.notify(drain)
        return peer

    def on_disconnected(self, peer: Peer) -> None:
        """Remove a process."""
        self._peers.pop(peer.name, None)
        if self._processes.get(peer.hello.id) is peer:
            del self._processes[peer.hello.id]
        if self._subscribers.pop(peer.name, None) is not None:
            self.handle(e.SubscriberLeft(subscriber=peer.name))
        self._loop.call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Remove the large values of processes that have ended."""
        directory = ensure_engine().shared_directory
        if directory is not None:
            shared_values.sweep(directory)

    def on_notice(self, peer: Peer, message: object) -> None:
        """Handle a notice."""
        match message:
            case m.Subscribe():
                self._subscribers[peer.name] = peer
                self.handle(e.SubscriberJoined(subscriber=peer.name, process=peer.hello.id))
            case m.Acknowledge(version=version):
                self.handle(e.Acknowledged(subscriber=peer.name, version=version))
            case m.LoadReport(loads=loads):
                self.handle(e.Load(subscriber=peer.name, loads=loads))
            case ReplicaReport() | ProxyReport():
                if self._recorder is not None:
                    self._recorder.report(message)
            case _:
                self.handle(message)  # type: ignore[arg-type]  # events are checked there

    def on_request(self, peer: Peer, call_id: int, payload: bytes) -> None:
        """Handle a request; errors go to the program that asked."""
        try:
            self._answer(peer, call_id, pickle.loads(payload))
        except Exception as error:
            peer.fail(call_id, error)

    def _answer(self, peer: Peer, call_id: int, request: object) -> None:
        machine, wait = self._machine, partial(self._waiters.add, peer, call_id)
        match request:
            case m.GetStatus():
                peer.reply(call_id, views.serve_status(machine))
            case m.GetDetails():
                details = views.serve_details(machine, now=self._clock(), events=self.recent)
                peer.reply(call_id, details)
            case m.GetApplication(name=name):
                application = machine.applications.get(name)
                gone = application is None or application.is_deleting
                peer.reply(call_id, None if gone or application is None else application.info())
            case m.GetRecordPath():
                peer.reply(call_id, self._recorder.path if self._recorder is not None else "")
            case m.GetStack(replica_id=replica_id):
                read_stack = partial(self._actors.stack_of, REPLICA + replica_id)
                self._actors.ask(read_stack, partial(peer.reply, call_id))
            case m.GetTarget(name=name):
                application = machine.applications.get(name)
                peer.reply(call_id, None if application is None else application.target)
            case m.Deploy(applications=targets):
                self._handle_request(request)
                versions = {each.name: machine.applications[each.name].version for each in targets}
                peer.reply(call_id, versions)
            case m.WaitForApplication():
                wait(requests.application_runs(request))
            case m.DeleteApplications():
                self._handle_request(request)
                wait(requests.applications_are_gone(request))
            case m.StartProxies():
                warning = machine.proxies.conflict(request)
                if warning is None:
                    self._handle_request(request)
                wait(requests.proxies_listen(warning))
            case m.SetReplicas() | m.RestartReplica():
                self._handle_request(request)
                peer.reply(call_id, None)
            case m.Shutdown():
                self._handle_request(request)
                wait(requests.everything_is_gone)
            case _:
                raise RayServeException(f"The controller knows no request {request!r}.")

    # -- events

    def _handle_request(self, request: Event) -> None:
        """Handle an event that may raise, for the sender to see."""
        self._execute_all(self._machine.handle(request, self._clock()))
        self._plan_wake()

    def handle(self, event: Event) -> None:
        """Handle an event together with the others at the end of this loop iteration.

        After a slow snapshot it is handled later, together with all events until then.
        """
        try:
            self._machine.note(event, self._clock())
        except Exception:
            logger.exception("The controller cannot handle %r", event)
            return
        if not self._will_settle:
            self._will_settle = True
            pause_s = self._saved_at + self._save_s * (1 / SAVE_SHARE - 1) - self._clock()
            if pause_s > 0:
                self._loop.call_later(pause_s, self._settle)
            else:
                self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        self._will_settle = False
        self._execute_all(self._machine.settle(self._clock()))
        self._plan_wake()

    def _plan_wake(self) -> None:
        at = self._machine.wake_at()
        if at is None:
            return
        delay_s = max(0.0, at - self._clock())
        if self._timer is not None:
            if self._timer.when() <= self._loop.time() + delay_s + 0.001:
                return  # it wakes early enough
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.handle(e.Tick())

    def _watch_nodes(self) -> None:
        def look() -> e.NodesChanged:
            engine = ensure_engine()
            now = time.time()
            return e.NodesChanged(
                nodes=tuple(str(row["NodeID"]) for row in engine.nodes() if row["Alive"]),
                draining={
                    node: None if at is None else max(0.0, at - now)
                    for node, at in engine.draining_nodes().items()
                },
            )

        self._actors.ask(look, self.handle)
        self._loop.call_later(NODES_S, self._watch_nodes)

    # -- events of actors

    def on_actor_placed(self, name: str) -> None:
        """The process of a replica or proxy exists."""
        if name.startswith(REPLICA):
            self.handle(e.ReplicaPlaced(replica_id=name.removeprefix(REPLICA)))

    def on_actor_refused(self, name: str, reason: str) -> None:
        """A replica or proxy can never start."""
        if name.startswith(REPLICA):
            replica_id = name.removeprefix(REPLICA)
            self.handle(e.StartRefused(replica_id=replica_id, reason=reason))
        else:
            self._proxy_failed(name.removeprefix(PROXY), RuntimeError(reason))

    def on_actor_ended(self, name: str, cause: str) -> None:
        """The process of a replica or proxy is gone."""
        id = name.removeprefix(REPLICA).removeprefix(PROXY)
        self._drains.pop(id, None)
        if name.startswith(REPLICA):
            self.handle(e.ReplicaEnded(replica_id=id, cause=cause))
        else:
            self.handle(e.ProxyEnded(proxy_id=id, cause=cause))

    def _proxy_failed(self, proxy_id: str, error: BaseException) -> None:
        packed = serialization.pack_error(error)
        self.handle(m.ProxyFailed(proxy_id=proxy_id, error=packed, traceback=str(error)))
        self.handle(e.ProxyEnded(proxy_id=proxy_id, cause=str(error)))

    # -- instructions

    def _execute_all(self, instructions: list[Instruction]) -> None:
        self._has_changed = True
        changed = False
        for instruction in instructions:
            changed = changed or isinstance(instruction, e.StatusChanged)
            self.dispatch(instruction)
        if changed:
            self._waiters.check()

    @on(e.StartReplica)
    def _start_replica(self, step: e.StartReplica) -> None:
        options = self._machine.proxies.options
        tracing = options.tracing_config if options is not None else None
        self._actors.start(replica_start(step, self._session, tracing))

    @property
    def _session(self) -> Session:
        return Session(
            directory=self._directory,
            key=self.key,
            controller=self.address,
            is_cluster=self._is_cluster,
        )

    @property
    def address(self) -> Address:
        """Address of the controller."""
        assert self._listener.address is not None
        return self._listener.address

    @on(e.SendToReplica)
    def _send_to_replica(self, step: e.SendToReplica) -> None:
        peer = self._processes.get(step.replica_id)
        if peer is not None:
            peer.notify(_pickled(step.message))

    @on(e.DrainReplica)
    def _drain_replica(self, step: e.DrainReplica) -> None:
        self._send_drain(step.replica_id, _pickled(m.Drain(timeout_s=step.timeout_s)))

    def _send_drain(self, id: str, payload: bytes) -> None:
        peer = self._processes.get(id)
        if peer is None:
            self._drains[id] = payload
        else:
            peer.notify(payload)

    @on(e.KillReplica)
    def _kill_replica(self, step: e.KillReplica) -> None:
        self._actors.kill(REPLICA + step.replica_id)

    @on(e.InspectStart)
    def _inspect(self, step: e.InspectStart) -> None:
        id = step.replica_id
        owner = next((each for each in self._machine.deployments() if id in each.replicas), None)
        if owner is None:
            return
        config = owner.replicas[id].version.target.config
        needed = demand(config)
        on_node = Counter(each.node_id for each in owner.replicas.values())

        def resources() -> e.StartInspected:
            free = dict(available_resources())
            if (limit := config.max_replicas_per_node) is not None:
                places = [
                    limit - on_node[row["NodeID"]]
                    for row in ensure_engine().nodes()
                    if row["Alive"] and has_resources(row["Resources"], needed)
                ]
                free[PLACE] = max(places, default=0) / limit
            return e.StartInspected(
                replica_id=id,
                text=available_text(needed, free),
                lacks_resources=is_lacking(needed, free),
            )

        def stack() -> e.StartInspected:
            return e.StartInspected(replica_id=id, text=self._actors.stack_of(REPLICA + id))

        self._actors.ask(resources if step.kind == "waits" else stack, self.handle)

    @on(e.Publish)
    def _publish(self, step: e.Publish) -> None:
        payload = _pickled(step.update)
        names = list(self._subscribers) if step.subscriber is None else [step.subscriber]
        for name in names:
            peer = self._subscribers.get(name)
            if peer is not None:
                peer.notify(payload)

    @on(e.StartProxy)
    def _start_proxy(self, step: e.StartProxy) -> None:
        passed = None
        if step.node_id == self._node_id:
            try:
                self._sockets.open(step.options.http)
            except OSError as error:
                self._loop.call_soon(self._proxy_failed, step.proxy_id, error)
                return
            passed = self._sockets.path
        self._actors.start(proxy_start(step, self._session, passed))

    @on(e.StopProxy)
    def _stop_proxy(self, step: e.StopProxy) -> None:
        if step.force:
            self._actors.kill(PROXY + step.proxy_id)
            return
        if self._machine.proxies.options is None:
            self._sockets.close_listening()  # new connections are refused
        self._send_drain(step.proxy_id, _pickled(m.DrainProxy(timeout_s=DRAIN_PROXY_S)))

    @on(e.StartDeploymentActor)
    def _start_deployment_actor(self, step: e.StartDeploymentActor) -> None:
        self._deployment_actors.start(step)

    @on(e.InspectDeploymentActor)
    def _inspect_deployment_actor(self, step: e.InspectDeploymentActor) -> None:
        self._deployment_actors.inspect(step)

    @on(e.KillDeploymentActor)
    def _kill_deployment_actor(self, step: e.KillDeploymentActor) -> None:
        self._deployment_actors.kill(step.actor_id)

    @on(e.RecordEvent)
    def _record(self, step: e.RecordEvent) -> None:
        logger.log(_LEVELS.get(step.level, logging.ERROR), "%s", step.message)
        stamp = time.strftime("%H:%M:%S")
        self.recent.append(f"{stamp} {step.message}")
        if self._recorder is not None:
            self._recorder.event(step)

    @on(e.StatusChanged)
    def _status_changed(self, step: e.StatusChanged) -> None:
        pass  # waiting requests are checked after the instructions

    # -- snapshots

    @on(e.Save)
    def _save_state(self, step: e.Save) -> None:
        self._save()

    def _save(self) -> None:
        if self._save_timer is not None:
            self._save_timer.cancel()
            self._save_timer = None
        began = self._clock()
        try:
            self._snapshots.save(
                Snapshot(key=self.key, directory=self._directory, state=self._machine.save())
            )
        except OSError as error:
            if not self._is_unsaved:
                logger.error(
                    "The state of serve cannot be stored, so a restarted controller would continue "
                    "from an earlier one: %s",
                    error,
                )
            self._is_unsaved = True
            self._save_timer = self._loop.call_later(SAVE_AGAIN_S, self._save)
        else:
            self._is_unsaved = False
        self._saved_at = self._clock()
        self._save_s = self._saved_at - began


def _started(instructions: list[Instruction]) -> set[str]:
    """Return the ids of the processes that instructions start."""
    ids = set()
    for each in instructions:
        match each:
            case e.StartReplica():
                ids.add(each.replica_id)
            case e.StartProxy():
                ids.add(each.proxy_id)
            case e.StartDeploymentActor():
                ids.add(each.actor_id)
    return ids


def _pickled(message: object) -> bytes:
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
