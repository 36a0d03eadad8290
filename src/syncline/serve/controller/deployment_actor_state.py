"""The actors that the replicas of one deployment share, as the controller knows them. Pure.

    WAITING -> STARTING -> RUNNING
       ^          |           |
       +----------+-----------+        it failed or died: another attempt follows after a pause
    STARTING, RUNNING -> STOPPING -> (forgotten)

The actors belong to a code version, which includes their configuration. An update with different
actors starts them in parallel to the old ones, which end with the last replica that uses them. If
the resources do not suffice for both, the old replicas and their actors end first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Literal

from syncline.core.options import ActorOptions, updated
from syncline.core.state_machine import Lifecycle, StateEnum, TransitionTable
from syncline.serve.config import DeploymentActorConfig
from syncline.serve.controller.events import (
    DeploymentActorInspected,
    InspectDeploymentActor,
    KillDeploymentActor,
    StartDeploymentActor,
)
from syncline.serve.controller.messages import DeploymentTarget
from syncline.serve.controller.step import DeadlineKind, Step, backoff_s
from syncline.serve.wire.deployment_actor_names import deployment_actor_name
from syncline.serve.wire.routes import DeploymentId

SHORT_LIFE_S = 10.0
"""An actor that dies earlier after its start is restarted after a pause."""
SLOW_START_S = 10.0
"""Seconds after which a start that has not ended is inspected and shown in the status."""


class ActorState(StateEnum):
    """State of a deployment actor."""

    WAITING = "WAITING"
    """Has no process and is started after a pause."""
    STARTING = "STARTING"
    """Waits for resources, or its constructor runs."""
    RUNNING = "RUNNING"
    """Takes calls."""
    STOPPING = "STOPPING"
    """Its process is being killed."""


_S = ActorState
_DEADLINES: tuple[DeadlineKind, ...] = ("actor_backoff", "actor_slow")
TRANSITIONS: TransitionTable[ActorState] = {
    _S.WAITING: frozenset({_S.STARTING}),
    _S.STARTING: frozenset({_S.RUNNING, _S.WAITING, _S.STOPPING}),
    _S.RUNNING: frozenset({_S.WAITING, _S.STOPPING}),
    _S.STOPPING: frozenset(),
}


@dataclass(slots=True, eq=False)
class DeploymentActor:
    """One actor until its process has ended and it is no longer needed."""

    id: str
    """Its name in serve's namespace."""
    code_version: str
    """Replicas of this code version use it."""
    config: DeploymentActorConfig
    runtime_env: object = None
    """Runtime environment of the deployment, which the actor inherits."""
    failures: int = 0
    """Number of consecutive failed starts and early deaths."""
    start_after: float = 0.0
    """Time of the next start at the earliest."""
    ready_at: float | None = None
    error: str = ""
    """Reason why it does not run."""
    lacks_resources: bool = False
    """True while its start waits for resources."""
    lifecycle: Lifecycle[ActorState] = field(init=False)

    def __post_init__(self) -> None:
        self.resume(_S.WAITING)

    def resume(self, state: ActorState) -> None:
        """Enter the initial state."""
        self.lifecycle = Lifecycle(f"deployment actor {self.id}", TRANSITIONS, state)

    @property
    def state(self) -> ActorState:
        """Current state."""
        return self.lifecycle.state


class DeploymentActors:
    """The actors of one deployment, of all code versions that replicas use.

    Args:
        id: The deployment.
        step: Time, deadlines and instructions.
        on_failure: Called with the code version, the reason, and True if no start can succeed,
            after a failed start.
    """

    def __init__(
        self, id: DeploymentId, step: Step, on_failure: Callable[[str, str, bool], None]
    ) -> None:
        self.by_id: dict[str, DeploymentActor] = {}
        self._id = id
        self._step = step
        self._on_failure = on_failure

    def follow(
        self, active: DeploymentTarget | None, running: Collection[str], used: Collection[str]
    ) -> None:
        """Start missing actors, and end the actors that no replica uses.

        Args:
            active: Target of the replicas to start; None if no more replicas are started.
            running: Code versions of replicas that are not being stopped.
            used: Code versions of all replicas.
        """
        if active is not None:
            self._add(active)
        current = set(running) if active is None else {*running, active.code_version}
        for actor in list(self.by_id.values()):
            if actor.code_version not in current and actor.code_version not in used:
                self._stop(actor)
            elif actor.state is _S.WAITING and actor.code_version in current:
                self._start(actor)

    def is_ready(self, target: DeploymentTarget) -> bool:
        """Return True if all actors of a target take calls."""
        return all(
            (actor := self.by_id.get(self._name(target, config))) is not None
            and actor.state is _S.RUNNING
            for config in target.config.deployment_actors
        )

    def must_make_room(self, target: DeploymentTarget) -> bool:
        """Return True if an actor of a target waits for resources that others may hold."""
        return any(
            actor.lacks_resources and actor.code_version == target.code_version
            for actor in self.by_id.values()
        )

    def trouble(self, target: DeploymentTarget) -> str:
        """Return the reason why actors of a target do not run; empty if none has failed."""
        return "; ".join(
            f"deployment actor {actor.config.name!r} does not run: {actor.error}"
            for actor in self.by_id.values()
            if actor.code_version == target.code_version
            and actor.state in (_S.WAITING, _S.STARTING)
            and actor.error
        )

    def _name(self, target: DeploymentTarget, config: DeploymentActorConfig) -> str:
        return deployment_actor_name(self._id, target.code_version, config.name)

    def _add(self, target: DeploymentTarget) -> None:
        for config in target.config.deployment_actors:
            id = self._name(target, config)
            if id not in self.by_id:  # one that is being killed ends first
                self.by_id[id] = DeploymentActor(
                    id=id,
                    code_version=target.code_version,
                    config=config,
                    runtime_env=target.config.ray_actor_options.get("runtime_env"),
                )

    def _start(self, actor: DeploymentActor) -> None:
        step = self._step
        if step.now < actor.start_after:
            step.deadlines.set(("actor_backoff", actor.id), actor.start_after)
            return
        actor.lifecycle.go(_S.STARTING, "it is needed")
        actor.lacks_resources = False
        step.must_save = True
        step.after("actor_slow", actor.id, SLOW_START_S)
        step.emit(
            StartDeploymentActor(
                actor_id=actor.id, config=actor.config, runtime_env=actor.runtime_env
            )
        )

    def _stop(self, actor: DeploymentActor) -> None:
        if actor.state is _S.STOPPING:
            return
        self._step.must_save = True
        for kind in _DEADLINES:
            self._step.deadlines.cancel((kind, actor.id))
        if actor.state is _S.WAITING:
            del self.by_id[actor.id]
            return
        actor.lifecycle.go(_S.STOPPING, "no replica uses it")
        self._step.emit(KillDeploymentActor(actor_id=actor.id))

    # -- events

    def on_ready(self, actor: DeploymentActor) -> None:
        """The constructor has returned."""
        if actor.state is not _S.STARTING:
            return
        actor.lifecycle.go(_S.RUNNING, "it is ready")
        actor.ready_at = self._step.now
        self._step.deadlines.cancel(("actor_slow", actor.id))
        actor.error, actor.lacks_resources = "", False
        self._step.must_save = True
        self._record("deployment_actor_started", actor, "started.", "debug")

    def on_slow(self, actor: DeploymentActor) -> None:
        """The start takes long."""
        if actor.state is not _S.STARTING:
            return
        needed = updated(ActorOptions(), actor.config.actor_options).resources_needed()
        self._step.emit(InspectDeploymentActor(actor_id=actor.id, needed=needed))
        self._step.after("actor_slow", actor.id, SLOW_START_S)

    def on_inspected(self, actor: DeploymentActor, event: DeploymentActorInspected) -> None:
        """Record the reason for a slow start."""
        if actor.state is not _S.STARTING:
            return
        before = actor.error
        actor.lacks_resources = event.lacks_resources
        actor.error = (
            f"it waits for resources: {event.text}"
            if event.lacks_resources
            else "its constructor has not returned yet"
        )
        if actor.error != before:
            self._record("deployment_actor_slow", actor, f"is slow: {actor.error}", "warning")

    def on_failed(self, actor: DeploymentActor, reason: str, *, is_final: bool) -> None:
        """The constructor raised, or the actor can never start; its process is gone."""
        if actor.state is _S.STOPPING:
            self._forget(actor)
            return
        if actor.state is not _S.STARTING:
            return
        self._retry(actor, reason)
        self._record("deployment_actor_failed", actor, f"did not start: {reason}", "warning")
        self._on_failure(
            actor.code_version,
            f"deployment actor {actor.config.name!r} did not start: {reason}",
            is_final,
        )

    def on_ended(self, actor: DeploymentActor, cause: str) -> None:
        """The process is gone."""
        if actor.state is _S.STOPPING:
            self._forget(actor)
            return
        if actor.state is not _S.RUNNING:
            reason = cause or "its process ended before it was ready"
            self.on_failed(actor, reason, is_final=False)
            return
        lived_s = self._step.now - (actor.ready_at or 0.0)
        if lived_s >= SHORT_LIFE_S:
            actor.failures = 0
        self._retry(actor, cause or "its process ended")
        if lived_s >= SHORT_LIFE_S:
            actor.start_after = self._step.now
        self._record(
            "deployment_actor_died",
            actor,
            f"died and is restarted: {cause or 'its process ended'}",
            "warning",
        )

    def _retry(self, actor: DeploymentActor, reason: str) -> None:
        actor.failures += 1
        actor.error, actor.lacks_resources = reason, False
        actor.start_after = self._step.now + backoff_s(actor.failures)
        actor.lifecycle.go(_S.WAITING, reason)
        self._step.must_save = True

    def _forget(self, actor: DeploymentActor) -> None:
        del self.by_id[actor.id]
        self._step.must_save = True
        self._record("deployment_actor_ended", actor, "ended.", "debug")

    def _record(
        self, kind: str, actor: DeploymentActor, what: str, level: Literal["debug", "warning"]
    ) -> None:
        self._step.record(
            kind,
            f"Actor {actor.config.name!r} of deployment {self._id} {what}",
            deployment=self._id,
            level=level,
            actor=actor.config.name,
        )
