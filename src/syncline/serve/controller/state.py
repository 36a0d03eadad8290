"""State machine of the controller: `handle(event, now) -> [instructions]`. Pure.

- applications, deployments, replicas: `application_state`, `deployment_state`, `replica_set`,
  `rollout`, `scaling`
- the published table and its subscribers: `routing_table`
- proxies: `proxy_state`

Each event changes the state of its subject; then the parts that it concerns take their next steps,
deadlines that are due are handled, and the changes of the routing table are published together.
Requests that are invalid raise before they change anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from syncline.core.state_machine import Dispatcher, on
from syncline.serve.controller import deployment_status, events, saved_state
from syncline.serve.controller import messages as m
from syncline.serve.controller.application_state import ApplicationState
from syncline.serve.controller.autoscaler import Policy
from syncline.serve.controller.deployment_actor_state import DeploymentActor
from syncline.serve.controller.deployment_state import DeploymentState
from syncline.serve.controller.events import Event, Instruction, Publish, Save, StatusChanged
from syncline.serve.controller.proxy_state import ProxyFleet
from syncline.serve.controller.replica_state import Replica
from syncline.serve.controller.routing_table import RoutingTable
from syncline.serve.controller.step import DeadlineKey, Step
from syncline.serve.exceptions import RayServeException
from syncline.serve.wire.deployment_actor_names import parse_actor_name
from syncline.serve.wire.routes import DeploymentId

RECONNECT_S = 2.0
"""Seconds that a restarted controller waits for the subscribers of the earlier one.

They try once a second.
"""
NO_LOAD = m.DeploymentLoad(0, {})


class ControllerMachine(Dispatcher[Event, None], handles=Event):
    """Everything that the controller decides.

    Args:
        head_node: Node of the controller.
        new_suffix: Returns a new unique suffix of ids.
        load_policy: Returns a policy function from its pickled form.
        wall_clock: Returns seconds since the epoch, for display.
    """

    def __init__(
        self,
        *,
        head_node: str,
        new_suffix: Callable[[], str],
        load_policy: Callable[[bytes], Policy],
        wall_clock: Callable[[], float],
    ) -> None:
        self._step = Step(new_suffix, load_policy, wall_clock)
        self.applications: dict[str, ApplicationState] = {}
        self.table = RoutingTable()
        self.proxies = ProxyFleet(self._step, head_node)
        self.is_shutting_down = False
        self._head_node = head_node
        self._nodes: tuple[str, ...] = (head_node,)
        self._busy_nodes: set[str] = set()
        self._changed: set[DeploymentId] = set()  # deployments to reconcile and publish
        self._draining: set[DeploymentId] = set()  # deployments with replicas to drain
        self._loads: dict[str, dict[DeploymentId, m.DeploymentLoad]] = defaultdict(dict)

    # -- for the driver

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Return the instructions to execute after `event`, in order.

        Raises RayServeException, KeyError, ValueError or ImportError for an invalid request.
        """
        self.note(event, now)
        return self.settle(now)

    def note(self, event: Event, now: float) -> None:
        """Change the state of the event's subject, without the steps that follow from it.

        Events that arrive together are recorded first and settled in one pass over all replicas.
        Raises the errors of `handle`.
        """
        self._step.now = now
        self._step.table_version = self.table.version
        self.dispatch(event)

    def settle(self, now: float) -> list[Instruction]:
        """Return the instructions that follow from the noted events and from the time."""
        self._step.now = now
        self._settle()
        return self._finish()

    def wake_at(self) -> float | None:
        """Return the time of the next `Tick`, or None."""
        return self._step.deadlines.next_at()

    def restore(self, saved: saved_state.SavedState, now: float) -> list[Instruction]:
        """Put a saved state back. Used once, before the first event."""
        self._step.now = now
        self.table = RoutingTable(saved.table_version + 1, saved.subscribers)
        self._step.after("reconnect", "", RECONNECT_S)
        self._step.table_version = self.table.version
        for each in saved.applications:
            application = saved_state.restore_application(each, self._step)
            self.applications[application.name] = application
            self._changed.update(d.id for d in application.deployments.values())
        saved_state.restore_proxies(self.proxies, saved)
        self.is_shutting_down = saved.is_shutting_down
        self._settle()
        return self._finish()

    def save(self) -> saved_state.SavedState:
        """Return the data from which `restore` continues."""
        return saved_state.SavedState(
            table_version=self.table.version,
            applications=tuple(map(saved_state.save_application, self.applications.values())),
            proxy_options=self.proxies.options,
            proxies=saved_state.save_proxies(self.proxies),
            subscribers=self.table.processes,
            is_shutting_down=self.is_shutting_down,
        )

    def deployment(self, id: DeploymentId) -> DeploymentState | None:
        """Return a deployment."""
        application = self.applications.get(id.app)
        return None if application is None else application.deployments.get(id.name)

    def deployments(self) -> Iterable[DeploymentState]:
        """Return all deployments."""
        for application in self.applications.values():
            yield from application.deployments.values()

    def replica(self, replica_id: str) -> Replica | None:
        """Return a replica."""
        known = self._find(replica_id)
        return None if known is None else known[1]

    def ongoing(self) -> Mapping[str, int]:
        """Return the calls in flight by replica, as callers report them."""
        total: dict[str, int] = defaultdict(int)
        for loads in self._loads.values():
            for load in loads.values():
                for replica_id, count in load.ongoing.items():
                    total[replica_id] += count
        return total

    @property
    def is_empty(self) -> bool:
        """True if no replica and no proxy is left."""
        return not self.applications and not self.proxies.proxies

    # -- the end of a step

    def _settle(self) -> None:
        """Take the next steps of changed parts, until nothing is due."""
        step = self._step
        for _ in range(10_000):
            self._reconcile()
            due = step.deadlines.pop_due(step.now)
            if due is None:
                break
            self._on_deadline(due)
        self.proxies.reconcile(self._nodes, self._busy_nodes)

    def _reconcile(self) -> None:
        while self._changed:
            changed = list(self._changed)
            self._changed.clear()
            for id in changed:
                deployment = self.deployment(id)
                application = self.applications.get(id.app)
                if application is None:
                    continue
                if deployment is not None:
                    deployment.reconcile()
                self._changed.update(application.finish())
            self._publish(changed)
            self._remove_applications()
            self._busy_nodes = {
                replica.node_id
                for each in self.deployments()
                for replica in each.replicas.values()
                if replica.node_id is not None
            }

    def _publish(self, changed: Iterable[DeploymentId]) -> None:
        routes = []
        for id in changed:
            deployment = self.deployment(id)
            gone = deployment is None or deployment.is_deleted
            routes.append(
                (id, None if gone or deployment is None else deployment_status.route(deployment))
            )
            if deployment is not None and any(
                each.removed_at is not None for each in deployment.replicas.values()
            ):
                self._draining.add(id)
        applications = tuple(
            route for each in self.applications.values() if (route := each.route()) is not None
        )
        update = self.table.change(routes, applications, self._step.departures)
        self._step.departures.clear()
        if update is not None:
            self._step.emit(Publish(update=update))
            self._step.table_version = self.table.version
            self._step.must_save = True
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Let replicas drain that no subscriber knows any more."""
        version = self.table.known_to_all()
        for id in list(self._draining):
            deployment = self.deployment(id)
            if deployment is not None:
                deployment.on_acknowledged(version)
            if deployment is None or not any(
                each.removed_at is not None for each in deployment.replicas.values()
            ):
                self._draining.discard(id)

    def _remove_applications(self) -> None:
        for name in [name for name, each in self.applications.items() if each.is_gone]:
            del self.applications[name]
            self._step.must_save = True
            self._step.emit(StatusChanged(app=name))
        if self.is_shutting_down and not self.applications and self.proxies.options is not None:
            self.proxies.stop()

    def _finish(self) -> list[Instruction]:
        step = self._step
        taken = step.take()
        if step.must_save:
            step.must_save = False
            return [Save(), *taken]
        return taken

    def _on_deadline(self, key: DeadlineKey) -> None:
        kind, subject = key
        if kind == "proxy_kill":
            self.proxies.kill(str(subject))
        elif kind == "reconnect":
            self.table.stop_expecting()
            self._acknowledge()
        elif kind == "proxy_backoff":
            pass  # proxies are reconciled after each step
        elif kind == "scale_app":
            application = self.applications.get(str(subject))
            if application is not None:
                application.scale()
                self._changed.update(each.id for each in application.deployments.values())
        elif kind in ("actor_backoff", "actor_slow"):
            known_actor = self._touch_actor(str(subject))
            if known_actor is not None and kind == "actor_slow":
                known_actor[0].actors.on_slow(known_actor[1])
        elif isinstance(subject, DeploymentId):
            deployment = self.deployment(subject)
            if deployment is not None and (kind != "scale" or self._scale(deployment)):
                self._changed.add(subject)
        else:
            known = self._find(subject)
            if known is not None:
                known[0].on_deadline(kind, known[1])
                self._changed.add(known[0].id)

    @staticmethod
    def _scale(deployment: DeploymentState) -> bool:
        return deployment.scaling.decide([each.id for each in deployment.serving()])

    # -- events of replicas

    def _find(self, replica_id: str) -> tuple[DeploymentState, Replica] | None:
        """Return a replica and its deployment; None if it is gone."""
        app, _, rest = replica_id.partition("#")
        deployment = self.deployment(DeploymentId(app, rest.rpartition("#")[0]))
        replica = None if deployment is None else deployment.replicas.get(replica_id)
        return None if deployment is None or replica is None else (deployment, replica)

    def _touch(self, replica_id: str) -> tuple[DeploymentState, Replica] | None:
        """Return a replica and its deployment, which will be reconciled."""
        known = self._find(replica_id)
        if known is not None:
            self._changed.add(known[0].id)
        return known

    @on(events.ReplicaPlaced)
    def _on_placed(self, event: events.ReplicaPlaced) -> None:
        known = self._find(event.replica_id)
        if known is None:
            return
        if known[1].note or not known[0].room.is_enough:
            self._changed.add(known[0].id)
        known[0].on_placed(known[1])

    @on(events.StartRefused)
    def _on_refused(self, event: events.StartRefused) -> None:
        if known := self._touch(event.replica_id):
            known[0].on_refused(known[1], event.reason)

    @on(events.StartInspected)
    def _on_inspected(self, event: events.StartInspected) -> None:
        if known := self._touch(event.replica_id):
            known[0].on_inspected(known[1], event)

    @on(m.ReplicaReady)
    def _on_ready(self, event: m.ReplicaReady) -> None:
        if known := self._touch(event.replica_id):
            known[0].on_ready(known[1], event)

    @on(m.ReplicaFailed)
    def _on_failed(self, event: m.ReplicaFailed) -> None:
        if known := self._touch(event.replica_id):
            known[0].on_start_failed(known[1], event.traceback)

    @on(events.ReplicaEnded)
    def _on_ended(self, event: events.ReplicaEnded) -> None:
        self.table.stop_expecting(event.replica_id)
        if known := self._touch(event.replica_id):
            known[0].on_ended(known[1], event.cause)

    @on(m.Reconfigured)
    def _on_reconfigured(self, event: m.Reconfigured) -> None:
        if known := self._touch(event.replica_id):
            known[0].on_reconfigured(known[1], event)

    @on(m.HealthReport)
    def _on_health(self, event: m.HealthReport) -> None:
        known = self._find(event.replica_id)
        if known is None:
            return
        before = (known[1].state, known[1].note)
        known[0].on_health(known[1], event)
        if before != (known[1].state, known[1].note):
            self._changed.add(known[0].id)

    @on(m.AutoscalingStats)
    def _on_stats(self, event: m.AutoscalingStats) -> None:
        known = self._find(event.replica_id)
        if known is not None and known[0].scaling.autoscaler is not None:
            known[0].scaling.autoscaler.record_stats(event.replica_id, event.stats)

    @on(m.RoutingStats)
    def _on_routing_stats(self, event: m.RoutingStats) -> None:
        known = self._find(event.replica_id)
        if known is None or known[1].route is None:
            return
        known[1].route = replace(known[1].route, routing_stats=event.stats)
        if known[0].active.target.request_router is not None:
            self._changed.add(known[0].id)

    @on(m.Drained)
    def _on_drained(self, event: m.Drained) -> None:
        if known := self._find(event.replica_id):
            known[0].on_drained(known[1])

    # -- events of deployment actors

    def _touch_actor(self, actor_id: str) -> tuple[DeploymentState, DeploymentActor] | None:
        """Return a deployment actor and its deployment, which will be reconciled."""
        parts = parse_actor_name(actor_id)
        deployment = None if parts is None else self.deployment(parts.deployment)
        actor = None if deployment is None else deployment.actors.by_id.get(actor_id)
        if deployment is None or actor is None:
            return None
        self._changed.add(deployment.id)
        return deployment, actor

    @on(events.DeploymentActorReady)
    def _on_actor_ready(self, event: events.DeploymentActorReady) -> None:
        if known := self._touch_actor(event.actor_id):
            known[0].actors.on_ready(known[1])

    @on(events.DeploymentActorFailed)
    def _on_actor_failed(self, event: events.DeploymentActorFailed) -> None:
        if known := self._touch_actor(event.actor_id):
            known[0].actors.on_failed(known[1], event.reason, is_final=event.is_final)

    @on(events.DeploymentActorInspected)
    def _on_actor_inspected(self, event: events.DeploymentActorInspected) -> None:
        if known := self._touch_actor(event.actor_id):
            known[0].actors.on_inspected(known[1], event)

    @on(events.DeploymentActorEnded)
    def _on_actor_ended(self, event: events.DeploymentActorEnded) -> None:
        if known := self._touch_actor(event.actor_id):
            known[0].actors.on_ended(known[1], event.cause)

    # -- events of subscribers

    @on(events.SubscriberJoined)
    def _on_joined(self, event: events.SubscriberJoined) -> None:
        if event.process not in self.table.processes:
            self._step.must_save = True
        update = self.table.join(event.subscriber, event.process)
        self._step.emit(Publish(update=update, subscriber=event.subscriber))

    @on(events.SubscriberLeft)
    def _on_left(self, event: events.SubscriberLeft) -> None:
        self.table.leave(event.subscriber)
        for id, load in self._loads.pop(event.subscriber, {}).items():
            self._add_load(id, load, NO_LOAD)
        self._acknowledge()

    @on(events.Acknowledged)
    def _on_acknowledged(self, event: events.Acknowledged) -> None:
        self.table.acknowledge(event.subscriber, event.version)
        if self._draining:
            self._acknowledge()

    @on(events.Load)
    def _on_load(self, event: events.Load) -> None:
        loads = self._loads[event.subscriber]
        for id, load in event.loads.items():
            before = loads.get(id, NO_LOAD)
            if load.queued or load.ongoing:
                loads[id] = load
            else:
                loads.pop(id, None)
            self._add_load(id, before, load)

    def _add_load(
        self, id: DeploymentId, before: m.DeploymentLoad, after: m.DeploymentLoad
    ) -> None:
        deployment = self.deployment(id)
        if deployment is not None:
            deployment.scaling.add_load(
                after.queued - before.queued,
                sum(after.ongoing.values()) - sum(before.ongoing.values()),
            )

    def _take_over_load(self, id: DeploymentId) -> None:
        """Begin a new deployment with what callers reported for an earlier one of its name.

        Later reports are compared with these. The replicas of the earlier one are gone.
        """
        for loads in self._loads.values():
            before = loads.get(id)
            if before is not None:
                loads[id] = m.DeploymentLoad(before.queued, {})
                self._add_load(id, NO_LOAD, loads[id])

    @on(m.PoisonRequest)
    def _on_poison(self, event: m.PoisonRequest) -> None:
        self._step.record(
            "poison_request",
            f"Request {event.request_id} was given up: it ended the replicas "
            f"{', '.join(event.replica_ids)}.",
            deployment=event.deployment,
            level="error",
            request_id=event.request_id,
        )

    # -- events of proxies and nodes

    @on(m.ProxyReady)
    def _on_proxy_ready(self, event: m.ProxyReady) -> None:
        self.proxies.on_ready(event)

    @on(m.ProxyFailed)
    def _on_proxy_failed(self, event: m.ProxyFailed) -> None:
        self.proxies.on_failed(event)

    @on(events.ProxyEnded)
    def _on_proxy_ended(self, event: events.ProxyEnded) -> None:
        self.table.stop_expecting(event.proxy_id)
        self.proxies.on_ended(event.proxy_id, event.cause)

    @on(events.NodesChanged)
    def _on_nodes(self, event: events.NodesChanged) -> None:
        self._nodes = event.nodes
        for deployment in self.deployments():
            leaving = [
                each for each in deployment.replicas.values() if each.node_id in event.draining
            ]
            if leaving:
                deployment.retire(leaving, "its node is drained")
                self._changed.add(deployment.id)

    # -- requests

    @on(m.Deploy)
    def _on_deploy(self, event: m.Deploy) -> None:
        self._check(event)
        names = {target.name for target in event.applications}
        if event.replace_all:
            for name, application in self.applications.items():
                if name not in names:
                    self._delete(application)
        for target in event.applications:
            known = self.applications.get(target.name)
            if known is None:
                known = self.applications[target.name] = ApplicationState(target, self._step)
            if known.needs(target):
                before = set(known.deployments)
                known.set_target(target)
                for name in known.deployments.keys() - before:
                    self._take_over_load(DeploymentId(known.name, name))
            self._changed.update(each.id for each in known.deployments.values())

    def _check(self, event: m.Deploy) -> None:
        """Raise for targets that contradict each other or running applications."""
        if self.is_shutting_down:
            raise RayServeException("Serve is shutting down: deploy after `serve.shutdown()`.")
        names = [target.name for target in event.applications]
        prefixes = {
            application.target.route_prefix: name
            for name, application in self.applications.items()
            if name not in names and not application.is_deleting and not event.replace_all
        }
        for target in event.applications:
            prefix = target.route_prefix
            if prefix is not None and prefix in prefixes:
                raise RayServeException(
                    f"`route_prefix={prefix!r}` of application {target.name!r} is the one of "
                    f"application {prefixes[prefix]!r}: choose another one, or delete that "
                    f"application with `serve.delete({prefixes[prefix]!r})`."
                )
            prefixes[prefix] = target.name
            for deployment in target.deployments:
                self._step.policy_of(deployment)  # raises for a wrong import path

    @on(m.DeleteApplications)
    def _on_delete(self, event: m.DeleteApplications) -> None:
        for name in event.names:
            application = self.applications.get(name)
            if application is not None:
                self._delete(application)

    def _delete(self, application: ApplicationState) -> None:
        application.delete()
        self._changed.update(each.id for each in application.deployments.values())

    @on(m.SetReplicas)
    def _on_set_replicas(self, event: m.SetReplicas) -> None:
        application = self.applications.get(event.deployment.app)
        deployment = self.deployment(event.deployment)
        if application is None or deployment is None:
            raise RayServeException(f"Deployment {event.deployment} does not exist.")
        if not application.target.external_scaler_enabled:
            raise RayServeException(
                f"Application {application.name!r} does not allow an external scaler: deploy it "
                "with `external_scaler_enabled=True`."
            )
        deployment.scaling.set_fixed(event.count)
        self._changed.add(deployment.id)
        self._step.must_save = True

    @on(m.RestartReplica)
    def _on_restart(self, event: m.RestartReplica) -> None:
        known = self._touch(event.replica_id)
        if known is None:
            raise KeyError(f"Replica {event.replica_id!r} does not exist.")
        known[0].retire([known[1]], "a restart was requested")

    @on(m.StartProxies)
    def _on_start_proxies(self, event: m.StartProxies) -> None:
        self.proxies.start(event)

    @on(m.Shutdown)
    def _on_shutdown(self, event: m.Shutdown) -> None:
        self.is_shutting_down = True
        self._step.must_save = True
        for application in self.applications.values():
            self._delete(application)
        self._remove_applications()

    @on(events.Tick)
    def _on_tick(self, event: events.Tick) -> None:
        pass  # deadlines that are due are handled after every event
