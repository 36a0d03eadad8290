"""State of one deployment: its target, its versions, and the rollout from one to the next. Pure.

`rollout.plan` decides which replicas start and stop; `replica_set` follows each of them.

If starts of a new version fail too often, the rollout stops: the version `has_failed`, replicas of
the previous version are kept, and missing replicas are started with the previous version.
"""

from __future__ import annotations

from syncline.serve.controller import rollout
from syncline.serve.controller.deployment_actor_state import DeploymentActors
from syncline.serve.controller.messages import DeploymentTarget
from syncline.serve.controller.replica_set import NEXT_WAIT_S, ReplicaSet
from syncline.serve.controller.replica_state import (
    Replica,
    ReplicaState,
    Version,
    needs_new_processes,
)
from syncline.serve.controller.scaling import Scaling
from syncline.serve.controller.step import Step
from syncline.serve.wire.routes import DeploymentId


class DeploymentState(ReplicaSet):
    """One deployment, from its first target to the end of its last replica."""

    def __init__(
        self, id: DeploymentId, target: DeploymentTarget, step: Step, route_prefix: str | None
    ) -> None:
        super().__init__(id, step, route_prefix)
        self.version = Version(number=1, config_number=1, target=target)
        """The version that was deployed last."""
        self.previous: Version | None = None
        """The last complete version before it; None once the current version is complete."""
        self.is_deploying = True
        """True until the last target is reached."""
        self.is_deleted = False
        self.scaling = Scaling(id, target, step)
        self.actors = DeploymentActors(id, step, self._on_actor_failure)
        step.must_save = True

    @property
    def wanted(self) -> int:
        """Number of replicas to run."""
        return 0 if self.is_deleted else self.scaling.wanted

    @property
    def is_gone(self) -> bool:
        """True after the end of the last process of a deleted deployment."""
        return self.is_deleted and not self.replicas and not self.actors.by_id

    @property
    def active(self) -> Version:
        """Version of the replicas that are started."""
        if self.version.has_failed and self.previous is not None:
            return self.previous
        return self.version

    # -- targets

    def set_target(self, target: DeploymentTarget, route_prefix: str | None) -> None:
        """Begin a rollout of other code or options, or try the failed ones again."""
        before = self.version
        self.is_deleted = False
        self.is_deploying = True
        self.route_prefix = route_prefix
        self.room.reset()
        self.trouble = ""
        self.version = self._version_for(target)
        if self.version is not before and before.was_complete:
            self.previous = before
        if self.previous is self.version:
            self.previous = None
        self.version.failures = 0
        self.version.has_failed = False
        self.version.start_after = self._step.now
        self._step.must_save = True
        options_changed = _replica_options(self.version.target) != _replica_options(target)
        self.version.target = target
        self.scaling.set_target(target)
        if options_changed:
            for replica in self.serving():
                if replica.version is self.version:
                    self.reconfigure(replica, self.version)
        if self.version is not before:
            what = "user_config" if self.version.number == before.number else "code or resources"
            self._step.record(
                "update_started",
                f"Deployment {self.id} is updated because its {what} changed.",
                deployment=self.id,
            )

    def _version_for(self, target: DeploymentTarget) -> Version:
        """Return a known version with this code and user configuration, or a new one."""
        known = [self.version, *([self.previous] if self.previous else [])]
        known += [each.version for each in self.replicas.values()]
        same_code = [each for each in known if not needs_new_processes(each.target, target)]
        for each in same_code:
            if each.target.config.user_config == target.config.user_config:
                return each
        return Version(
            number=same_code[0].number if same_code else 1 + max(each.number for each in known),
            config_number=1 + max(each.config_number for each in known),
            target=target,
        )

    def delete(self) -> None:
        """Stop all replicas."""
        self.is_deleted = True
        self.scaling.stop()
        self._step.must_save = True

    # -- the plan

    def reconcile(self) -> None:
        """Take the next steps towards the target."""
        while self._take_steps():
            pass
        self._follow_actors()

    def _follow_actors(self) -> None:
        """Start the actors of the active version, and end unused actors."""
        active = self.active
        is_given_up = self.is_deleted or (active.has_failed and not active.was_complete)
        if not self.actors.by_id and (is_given_up or not active.target.config.deployment_actors):
            return
        running, used = set[str](), set[str]()
        for replica in self.replicas.values():
            code_version = replica.version.target.code_version
            used.add(code_version)
            if replica.state is not ReplicaState.DRAINING:
                running.add(code_version)
        self.actors.follow(None if is_given_up else active.target, running, used)

    def _make_room_for_actors(self) -> None:
        """Drain the replicas of other code whose actors hold resources that new ones wait for."""
        active = self.active.target
        if self.is_deleted or not self.actors.must_make_room(active):
            return
        old = [
            each
            for each in self.serving()
            if each.version.target.code_version != active.code_version
            and each.version.target.config.deployment_actors
        ]
        for replica in old:
            self.drain(replica, "the actors of its successors wait for resources")
        if old:
            self._step.record(
                "no_room",
                f"Deployment {self.id}: the resources do not suffice for old and new deployment "
                f"actors at the same time, so the old replicas end first.",
                deployment=self.id,
                level="warning",
            )

    def _on_actor_failure(self, code_version: str, reason: str, is_final: bool) -> None:
        """Treat the failed start of an actor like that of a replica."""
        version = self.active
        if version.target.code_version == code_version:
            self._count_failure(version, None, reason, is_final=is_final)

    def _take_steps(self) -> bool:
        """Execute a plan; return True if another plan may follow."""
        active = self.active
        config = active.target.config
        self._make_room_for_actors()
        plan = rollout.plan(
            self.replicas.values(),
            active=active,
            kept={active.number, *([self.version.number] if self.version.has_failed else [])},
            wanted=self.wanted,
            batch=(
                rollout.batch_size(config, self.wanted) if self.room.is_enough else config.gang_size
            ),
            surge=self.room.is_enough,
            make_room=self._must_make_room(),
        )
        for replica in plan.cancel:
            self.cancel(replica, "it is no longer wanted")
        for replica in plan.drain:
            self.drain(replica, self._reason_to_stop(replica))
        for replica in plan.update:
            self.reconfigure(replica, active)
        if plan.start and self._may_start(active):
            self.start(active, plan.start)
        if plan.is_complete and (active.was_complete or self.actors.is_ready(active.target)):
            self._complete()
        return bool(plan.cancel or plan.drain)

    def _reason_to_stop(self, replica: Replica) -> str:
        if self.is_deleted:
            return "the deployment was deleted"
        if replica.retired:
            return replica.retired
        return "it was updated" if replica.version is not self.active else "it is not needed"

    def _may_start(self, active: Version) -> bool:
        gave_up = active.has_failed and not active.was_complete
        if gave_up and not any(each.version is active for each in self.serving()):
            return False
        if self._step.now < active.start_after:
            self._step.deadlines.set(("backoff", self.id), active.start_after)
            return False
        return self.actors.is_ready(active.target)

    def _note_wait(self) -> None:
        if not self.room.is_enough:
            return
        number = self.active.number
        if any(each.retired or each.version.number != number for each in self.serving()):
            self.room.is_enough = False
            self._step.record(
                "no_room",
                f"Deployment {self.id}: the resources do not suffice for an old and a new replica "
                f"at the same time, so replicas are replaced one by one, the old one first.",
                deployment=self.id,
                level="warning",
            )

    def _must_make_room(self) -> bool:
        """Return True if draining an old replica may unblock a waiting start."""
        if self.room.is_enough:
            return False
        if any(each.state is ReplicaState.DRAINING for each in self.replicas.values()):
            return False
        latest = self._step.now - NEXT_WAIT_S + 1e-9
        for each in self.replicas.values():
            if each.waits and each.created_at <= latest:
                return self.room.is_missing_for(each.version.target.config)
        return False

    def _complete(self) -> None:
        self.room.reset()
        self.trouble = ""
        version = self.active
        self.number_ranks(version)
        if version is not self.version:
            return  # the failed rollout left the previous version at full strength
        was_deploying, self.is_deploying = self.is_deploying, False
        version.has_failed = False
        if version.was_complete and not was_deploying:
            return
        version.was_complete = True
        self.previous = None
        self._step.must_save = True
        self._step.record(
            "deployed",
            f"Deployment {self.id} runs with {self.wanted} replica(s).",
            deployment=self.id,
        )


def _replica_options(target: DeploymentTarget) -> tuple[object, ...]:
    """Return the options that replicas apply without user code."""
    config = target.config
    return (
        config.max_ongoing_requests,
        config.graceful_shutdown_timeout_s,
        config.health_check_timeout_s,
        config.logging_config,
    )
