"""A simulated world around the controller's state machine: processes, subscribers, and time.

`World` executes the machine's instructions: it places replicas while there are CPUs, lets their
constructors return, fail or hang as told, and checks the machine's invariants after every step.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from syncline.serve.config import DeploymentConfig
from syncline.serve.controller import events as e
from syncline.serve.controller import messages as m
from syncline.serve.controller.rollout import demand
from syncline.serve.controller.state import ControllerMachine
from syncline.serve.wire.deployment_actor_names import deployment_actor_name
from syncline.serve.wire.routes import Address, DeploymentId, TableUpdate

NODE = "node-1"


def deployment(name="D", code="v1", *, ingress=True, policy=None, **options):
    """Return a target; `code` is its code version."""
    return m.DeploymentTarget(
        name=name,
        func_or_class=code.encode(),
        init_args=b"",
        code_version=code,
        config=DeploymentConfig(**options),
        is_ingress=ingress,
        autoscaling_policy=policy,
    )


def application(*deployments, name="app", prefix="/", **more):
    """Return the target of an application, by default with one deployment."""
    return m.ApplicationTarget(
        name=name, deployments=deployments or (deployment(),), route_prefix=prefix, **more
    )


@dataclass
class Process:
    """A simulated replica."""

    start: e.StartReplica
    cpus: float
    state: str = "waits"
    """"waits", "starts", "constructs", "runs", "drains", "failed"."""
    config_number: int = 0
    healthy: bool = True
    answers: bool = True

    @property
    def gang(self):
        """Id of its gang, or None."""
        return None if self.start.gang is None else self.start.gang.gang_id


@dataclass
class Subscriber:
    """A simulated router."""

    name: str
    version: int = -1
    routes: dict[DeploymentId, tuple[str, ...]] = field(default_factory=dict)
    delay_s: float = 0.001
    pending: int = 0


class World:
    """Everything outside of the machine.

    Args:
        cpus: CPUs for replicas.
        seed: Seed of suffixes and delays.
        together: Settle the events of one moment together, as the driver does.
    """

    def __init__(self, cpus=1000.0, seed=0, *, together=False):
        self.together = together
        self._noted = False
        self._used = 0.0
        self._waiting: dict[str, None] = {}
        self.random = random.Random(seed)
        self.now = 100.0
        self.cpus = cpus
        self.start_s: Callable[[str], float] = lambda code: 0.01
        """Seconds of the constructor by code version."""
        self.process_s = 0.0
        """Seconds from the resources of a replica to its process."""
        self.broken: dict[str, str] = {}
        """Error of the constructor by code version."""
        self.rejected_configs: set[object] = set()
        """Values of `user_config` for which `reconfigure` raises."""
        self.infeasible: set[str] = set()
        self.drain_s = 0.005
        self.drains_s: dict[str, float] = {}
        """Seconds to drain by replica id, where they differ."""
        self._groups: dict[str, float] = {}
        self.processes: dict[str, Process] = {}
        self.subscribers: dict[str, Subscriber] = {}
        self.records: list[e.RecordEvent] = []
        self.record_times: list[float] = []
        self.sent: list[tuple[str, object]] = []
        self.started: list[str] = []
        self.killed: list[tuple[str, str]] = []
        self.saves = 0
        self.actors: dict[str, str] = {}
        """States of deployment actors by name: "starts" or "runs"."""
        self.actor_starts: list[str] = []
        self.most_actors = 1000
        """Deployment actors for which there are resources."""
        self.broken_actors: dict[str, str] = {}
        """Error of the constructor by the name of `DeploymentActorConfig`."""
        self.proxies: dict[str, e.StartProxy] = {}
        self.proxy_error: bytes | None = None
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._suffixes = itertools.count()
        self.policies: dict[bytes, object] = {}
        self.machine = self._machine()
        self.least_serving: dict[DeploymentId, int] = {}

    def _machine(self):
        return ControllerMachine(
            head_node=NODE,
            new_suffix=lambda: f"{next(self._suffixes):08x}",
            load_policy=lambda packed: self.policies[packed],
            wall_clock=lambda: 1_000_000 + self.now,
        )

    # -- time

    def later(self, seconds, action):
        """Call `action` after so many seconds."""
        heapq.heappush(self._queue, (self.now + seconds, next(self._order), action))

    def run(self, seconds):
        """Let time pass."""
        end = self.now + seconds
        while True:
            if self._noted and (not self._queue or self._queue[0][0] > self.now):
                self._settle()
                continue
            wake = self.machine.wake_at()
            next_at = min(
                self._queue[0][0] if self._queue else float("inf"),
                wake if wake is not None else float("inf"),
            )
            if next_at > end:
                break
            self.now = max(self.now, next_at)
            if self._queue and self._queue[0][0] <= self.now:
                heapq.heappop(self._queue)[2]()
            else:
                self.handle(e.Tick())
                self._settle()
        self._settle()
        self.now = end

    def run_until(self, condition, limit_s=60.0, step_s=0.01):
        """Let time pass until `condition()`; return the seconds that it took."""
        begin = self.now
        while not condition():
            assert self.now - begin < limit_s, "the condition did not become true"
            self.run(step_s)
        return self.now - begin

    # -- the machine

    def handle(self, event):
        """Send an event to the machine, execute its instructions, and check invariants."""
        self.machine.note(event, self.now)
        self._noted = True
        if not self.together:
            self._settle()

    def _settle(self):
        if self._noted:
            self._noted = False
            for instruction in self.machine.settle(self.now):
                self._execute(instruction)
            self.check()

    def restart_controller(self, *, connect=True, subscribe=True, saved=None):
        """Kill the controller and start another one from the last snapshot, or an older one.

        `connect` is False for replicas that do not connect again, `subscribe` for subscribers.
        """
        saved = saved or self.machine.save()
        self.machine = self._machine()
        subscribers, self.subscribers = self.subscribers, {}  # which are not connected yet
        for instruction in self.machine.restore(saved, self.now):
            self._execute(instruction)
        self.subscribers = subscribers
        known = {id for each in self.machine.deployments() for id in each.replicas}
        for id in known - set(self.processes):
            self.handle(e.ReplicaEnded(replica_id=id, cause="it is gone"))
        for actor in [a for each in self.machine.deployments() for a in each.actors.by_id]:
            if actor in self.actors and self.actors[actor] == "runs":
                self.handle(e.DeploymentActorReady(actor_id=actor))
        for name in subscribers if subscribe else ():
            self.handle(e.SubscriberJoined(subscriber=name, process=name))
        if connect:
            for id, process in list(self.processes.items()):
                if process.state in ("runs", "drains"):
                    self._send_ready(id)

    def deploy(self, *applications, replace_all=False):
        """Deploy applications."""
        self.handle(m.Deploy(applications=applications, replace_all=replace_all))

    def subscribe(self, name="proxy", delay_s=0.001):
        """Add a subscriber that acknowledges after a delay; None: never."""
        self.subscribers[name] = Subscriber(name, delay_s=delay_s)
        self.handle(e.SubscriberJoined(subscriber=name, process=name))
        return self.subscribers[name]

    def load(self, queued=0, ongoing=0, *, name="D", app="app", subscriber="proxy"):
        """Report a load."""
        id = DeploymentId(app, name)
        spread: dict[str, int] = {}
        serving = self.serving(name, app)
        for index in range(ongoing):
            if serving:
                key = serving[index % len(serving)]
                spread[key] = spread.get(key, 0) + 1
        loads = {id: m.DeploymentLoad(queued + (0 if serving else ongoing), spread)}
        self.handle(e.Load(subscriber=subscriber, loads=loads))

    # -- views

    def deployment(self, name="D", app="app"):
        """Return the state of a deployment."""
        state = self.machine.deployment(DeploymentId(app, name))
        assert state is not None
        return state

    def serving(self, name="D", app="app"):
        """Return the ids of the serving replicas."""
        state = self.machine.deployment(DeploymentId(app, name))
        return [] if state is None else [each.id for each in state.serving()]

    def codes(self, name="D", app="app"):
        """Return the code versions of the serving replicas."""
        return sorted(
            each.version.target.code_version for each in self.deployment(name, app).serving()
        )

    def status(self, app="app"):
        """Return the name of an application's status; None if there is none."""
        state = self.machine.applications.get(app)
        return None if state is None else state.status().value

    def kinds(self):
        """Return the kinds of the recorded events."""
        return [each.kind for each in self.records]

    # -- instructions

    def _execute(self, instruction):
        match instruction:
            case e.StartReplica():
                self._start(instruction)
            case e.SendToReplica():
                self.sent.append((instruction.replica_id, instruction.message))
                self.later(0.001, lambda: self._receive(instruction))
            case e.DrainReplica():
                self._drain(instruction)
            case e.KillReplica():
                self.killed.append((instruction.replica_id, instruction.reason))
                self.later(0.002, lambda: self.end(instruction.replica_id, "SIGKILL"))
            case e.InspectStart():
                self.later(0.001, lambda: self.handle(self._inspected(instruction)))
            case e.Publish():
                self._publish(instruction)
            case e.RecordEvent():
                self.records.append(instruction)
                self.record_times.append(self.now)
            case e.Save():
                self.saves += 1
            case e.StartDeploymentActor():
                self._start_actor(instruction)
            case e.InspectDeploymentActor():
                self.later(0.001, lambda: self._inspect_actor(instruction))
            case e.KillDeploymentActor():
                self.later(0.002, lambda: self.end_actor(instruction.actor_id, ""))
            case e.StartProxy():
                self._start_proxy(instruction)
            case e.StopProxy():
                self.later(0.01, lambda: self.end_proxy(instruction.proxy_id))

    def _start(self, start):
        running = [id for id, state in self.actors.items() if state == "runs"]
        for config in start.target.config.deployment_actors:
            version = start.target.code_version
            name = deployment_actor_name(start.deployment, version, config.name)
            assert name in running, "replicas start after their actors"
        code = start.target.code_version
        self.started.append(code)
        if code in self.infeasible:
            self.later(
                0,
                lambda: self.handle(
                    e.StartRefused(replica_id=start.replica_id, reason="asked for 99 CPUs, has 4")
                ),
            )
            return
        cpus = demand(start.target.config).get("CPU", 0) / start.target.config.gang_size
        self.processes[start.replica_id] = Process(start, cpus, config_number=start.config_number)
        self._waiting[start.replica_id] = None
        self.later(0.001, self._place)

    def _place(self):
        for id in list(self._waiting):
            process = self.processes.get(id)
            if process is None or id not in self._waiting:
                continue
            members = self._placed_with(id)
            cpus = process.cpus * len(members)
            if self._used + cpus <= self.cpus + 1e-9:
                self._used += cpus
                if process.gang is not None:
                    self._groups[process.gang] = cpus
                for each in members:
                    self._begin(each)

    def _placed_with(self, id):
        """Return the ids of the processes that share a placement group."""
        gang = self.processes[id].gang
        return [id] if gang is None else [i for i, p in self.processes.items() if p.gang == gang]

    def _begin(self, id):
        del self._waiting[id]
        self.processes[id].state = "starts"
        if self.process_s:
            self.later(self.process_s, lambda: self._exist(id))
        else:
            self._exist(id)

    def _exist(self, id):
        process = self.processes.get(id)
        if process is None or process.state != "starts":
            return
        process.state = "constructs"
        self.handle(e.ReplicaPlaced(replica_id=id))
        seconds = self.start_s(process.start.target.code_version)
        self.later(seconds, lambda: self._construct(id))

    def _inspected(self, instruction):
        id = instruction.replica_id
        if instruction.kind == "runs":
            return e.StartInspected(replica_id=id, text="in load_model")
        free = self.cpus - self._used
        text = f"available: CPU {free:g}"
        return e.StartInspected(replica_id=id, text=text, lacks_resources=id in self._waiting)

    def _construct(self, id):
        process = self.processes.get(id)
        if process is None or process.state != "constructs":
            return
        target = process.start.target
        error = self.broken.get(target.code_version)
        if error is None and target.config.user_config in self.rejected_configs:
            error = "reconfigure raised"
        if error is not None:
            process.state = "failed"
            self.handle(m.ReplicaFailed(replica_id=id, error=b"", traceback=error))
            self.later(0.002, lambda: self.end(id, ""))
            return
        process.state = "runs"
        self._send_ready(id)

    def _send_ready(self, id):
        self.handle(
            m.ReplicaReady(
                replica_id=id,
                address=Address(node_id=NODE, unix_path=f"/s/{id}"),
                ledger_path=f"/l/{id}",
                is_asgi=False,
                docs_path=None,
                pid=1,
                node_id=NODE,
                constructor_s=0.01,
            )
        )

    def _receive(self, instruction):
        id, message = instruction.replica_id, instruction.message
        process = self.processes.get(id)
        if process is None or process.state not in ("runs", "drains") or not process.answers:
            return
        if isinstance(message, m.Exit):
            self.end(id, "")
            return
        if isinstance(message, m.CheckHealth):
            report = m.HealthReport(
                replica_id=id,
                healthy=process.healthy,
                message="" if process.healthy else "check_health raised",
            )
            self.later(0.001, lambda: self.handle(report))
            return
        failed = message.user_config_changed and message.user_config in self.rejected_configs
        if message.user_config_changed and not failed:
            process.config_number = message.version
        answer = m.Reconfigured(
            replica_id=id,
            version=message.version,
            traceback="reconfigure raised" if failed else None,
        )
        self.later(0.01, lambda: self.handle(answer))

    def _drain(self, instruction):
        process = self.processes.get(instruction.replica_id)
        if process is None or process.state not in ("runs", "drains"):
            return
        process.state = "drains"
        for subscriber in self.subscribers.values():  # nobody sends to it any more
            if subscriber.delay_s is not None and subscriber.delay_s < 2:
                known = [id for ids in subscriber.routes.values() for id in ids]
                assert instruction.replica_id not in known
        if process.answers:
            seconds = self.drains_s.get(instruction.replica_id, self.drain_s)
            self.later(seconds, lambda: self._drained(instruction.replica_id))

    def _drained(self, id):
        process = self.processes.get(id)
        if process is None:
            return
        self.handle(m.Drained(replica_id=id))
        if process.gang is None:
            self.end(id, "")

    def end(self, id, cause="SIGKILL"):
        """End the process of a replica."""
        process = self.processes.pop(id, None)
        if process is not None:
            if process.state == "waits":
                del self._waiting[id]
            elif process.gang is None:
                self._used -= process.cpus
            elif all(each.gang != process.gang for each in self.processes.values()):
                self._used -= self._groups.pop(process.gang)  # the group is removed
            self.handle(e.ReplicaEnded(replica_id=id, cause=cause))
            self._place()

    def _start_actor(self, start):
        id = start.actor_id
        assert id not in self.actors, "the name of an actor is free before it is created"
        self.actors[id] = "starts"
        self.actor_starts.append(start.config.name)

        def construct():
            if self.actors.get(id) != "starts":
                return
            if not self._has_room(id):
                self.later(0.02, construct)
                return
            error = self.broken_actors.get(start.config.name)
            if error is None:
                self.actors[id] = "runs"
                self.handle(e.DeploymentActorReady(actor_id=id))
            else:
                del self.actors[id]
                failed = e.DeploymentActorFailed(actor_id=id, reason=error, is_final=False)
                self.handle(failed)

        self.later(0.02, construct)

    def _has_room(self, actor_id):
        before = list(self.actors).index(actor_id)
        return before < self.most_actors

    def _inspect_actor(self, instruction):
        id = instruction.actor_id
        if id in self.actors:
            lacks = not self._has_room(id)
            text = f"it needs {instruction.needed}"
            self.handle(e.DeploymentActorInspected(actor_id=id, lacks_resources=lacks, text=text))

    def end_actor(self, id, cause="SIGKILL"):
        """End the process of a deployment actor."""
        if self.actors.pop(id, None) is not None:
            self.handle(e.DeploymentActorEnded(actor_id=id, cause=cause))

    def _start_proxy(self, instruction):
        self.proxies[instruction.proxy_id] = instruction
        id = instruction.proxy_id

        def ready():
            if id not in self.proxies:
                return
            if self.proxy_error is not None:
                self.handle(
                    m.ProxyFailed(proxy_id=id, error=self.proxy_error, traceback="port in use")
                )
                self.later(0.01, lambda: self.end_proxy(id))
            else:
                self.handle(
                    m.ProxyReady(proxy_id=id, node_id=NODE, pid=2, http_address=("127.0.0.1", 8000))
                )

        self.later(0.02, ready)

    def end_proxy(self, id, cause="SIGKILL"):
        """End the process of a proxy."""
        if self.proxies.pop(id, None) is not None:
            self.handle(e.ProxyEnded(proxy_id=id, cause=cause))

    def _publish(self, instruction):
        names = [instruction.subscriber] if instruction.subscriber else list(self.subscribers)
        for name in names:
            subscriber = self.subscribers.get(name)
            if subscriber is not None and subscriber.delay_s is not None:
                update, complete = instruction.update, instruction.subscriber is not None
                self.later(
                    subscriber.delay_s,
                    lambda s=subscriber, u=update, c=complete: self._apply(s, u, c),
                )

    def _apply(self, subscriber, update: TableUpdate, complete):
        if self.subscribers.get(subscriber.name) is not subscriber:
            return
        if complete:
            subscriber.routes.clear()
        for route in update.deployments:
            before = set(subscriber.routes.get(route.id, ()))
            now = tuple(each.replica_id for each in route.replicas)
            gone = before.difference(now)
            assert gone <= update.departures.keys(), "subscribers learn why replicas left"
            subscriber.routes[route.id] = now
        for id in update.removed:
            subscriber.routes.pop(id, None)
        subscriber.version = max(subscriber.version, update.version)
        self.handle(e.Acknowledged(subscriber=subscriber.name, version=subscriber.version))

    # -- invariants

    def check(self):
        """Check what must hold after every step."""
        for each in self.machine.deployments():
            route = self.machine.table.deployments.get(each.id)
            if each.is_deleted:
                assert route is None
                continue
            published = {replica.replica_id for replica in route.replicas} if route else set()
            serving = {replica.id for replica in each.serving()}
            assert published == serving, "exactly the serving replicas are published"
            self._check_gangs(each)
            for replica in each.replicas.values():
                assert replica.state.value != "STOPPED", "a stopped replica is forgotten"
                if replica.removed_at is not None:
                    assert replica.state.value == "STOPPING"
            least = self.least_serving.get(each.id)
            if least is not None:
                assert len(serving) >= least, f"{len(serving)} serve, but at least {least} must"
        ids = {each.id for each in self.machine.deployments() if not each.is_deleted}
        assert set(self.machine.table.deployments) <= ids

    @staticmethod
    def _check_gangs(deployment):
        """Check that gangs serve and stop as a whole."""
        gangs = {r.gang.id: r.gang for r in deployment.replicas.values() if r.gang is not None}
        for gang in gangs.values():
            states = [each.state.value for each in gang.members]
            stopping = [state == "STOPPING" for state in states]
            assert all(stopping) or not any(stopping), f"a part of a gang stops: {states}"
            serving = [each.is_serving for each in gang.members]
            assert all(serving) or not any(serving), "a part of a gang serves"
            assert all(stopping) or len(gang.members) == len(gang.replica_ids), "a gang has gaps"
            assert len({each.version.number for each in gang.members}) == 1
