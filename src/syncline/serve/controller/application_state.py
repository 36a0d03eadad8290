"""State of one application: its deployments, its route, and its status. Pure.

The route moves to a new ingress deployment once that serves. Deployments that are missing in a new
target are deleted once all others have reached the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline.core.state_machine import StateEnum
from syncline.serve.controller import deployment_status
from syncline.serve.controller.autoscaler import CUSTOM_INTERVAL_S
from syncline.serve.controller.deployment_state import DeploymentState
from syncline.serve.controller.deployment_status import DeploymentStatus
from syncline.serve.controller.events import StatusChanged
from syncline.serve.controller.messages import ApplicationInfo, ApplicationTarget
from syncline.serve.controller.step import Step
from syncline.serve.wire.routes import ApplicationRoute, DeploymentId


class ApplicationStatus(StateEnum):
    """Status of an application; the values are those of `schema.ApplicationStatus`."""

    DEPLOYING = "DEPLOYING"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    RUNNING = "RUNNING"
    UNHEALTHY = "UNHEALTHY"
    DELETING = "DELETING"


class ApplicationState:
    """One application, from its first target to the end of its last replica."""

    def __init__(self, target: ApplicationTarget, step: Step) -> None:
        self.name = target.name
        self.target = target
        self.version = 0
        """Number of the target; it grows with each `Deploy` that changes something."""
        self.deployments: dict[str, DeploymentState] = {}
        self.is_deleting = False
        self.deployed_s = 0.0
        """Time of the last change, in seconds since the epoch."""
        self.published: tuple[str | None, DeploymentId] | None = None
        """Route prefix and ingress in the routing table."""
        self._step = step
        self._last_status: object = None

    # -- targets

    def needs(self, target: ApplicationTarget) -> bool:
        """Return True if `target` changes anything, or if the same target failed."""
        return self.is_deleting or self.version == 0 or target != self.target or self.has_failed()

    def set_target(self, target: ApplicationTarget) -> None:
        """Begin to deploy a target."""
        self.target = target
        self.version += 1
        self.is_deleting = False
        self.deployed_s = self._step.wall_clock()
        self._step.must_save = True
        for wanted in target.deployments:
            prefix = target.route_prefix if wanted.is_ingress else None
            deployment = self.deployments.get(wanted.name)
            if deployment is None:
                id = DeploymentId(self.name, wanted.name)
                self.deployments[wanted.name] = DeploymentState(id, wanted, self._step, prefix)
            elif (
                deployment.is_deleted
                or deployment.version.has_failed
                or deployment.version.target != wanted
            ):
                deployment.set_target(wanted, prefix)
        self.follow_policy()
        self._step.record(
            "application_deployed",
            f"Application {self.name!r}, version {self.version}, is deployed.",
            app=self.name,
            version=self.version,
        )

    def follow_policy(self) -> None:
        """Let the policy of the application, if any, decide about replicas."""
        decides = self.target.autoscaling_policy is not None and not self.is_deleting
        for deployment in self.deployments.values():
            deployment.scaling.let_application_decide(decides)
        if decides:
            self._step.after("scale_app", self.name, CUSTOM_INTERVAL_S)
        else:
            self._step.deadlines.cancel(("scale_app", self.name))

    def delete(self) -> None:
        """Stop everything."""
        if self.is_deleting:
            return
        self.is_deleting = True
        self.published = None
        self._step.deadlines.cancel(("scale_app", self.name))
        for deployment in self.deployments.values():
            deployment.delete()
        self._step.must_save = True
        self._step.record(
            "application_deleted", f"Application {self.name!r} is deleted.", app=self.name
        )

    # -- the next steps

    def finish(self) -> list[DeploymentId]:
        """Follow up on a change of a deployment: the route, and deployments to remove.

        Return the deployments that it began to delete.
        """
        deleted = []
        names = {wanted.name for wanted in self.target.deployments}
        current = [self.deployments[name] for name in names if name in self.deployments]
        if not self.is_deleting and not any(_is_unfinished(each) for each in current):
            for name, deployment in self.deployments.items():
                if name not in names and not deployment.is_deleted:
                    deployment.delete()
                    deleted.append(deployment.id)
        for name in [name for name, each in self.deployments.items() if each.is_gone]:
            del self.deployments[name]
        self._publish()
        status = (self.version, self.status(), self.message())
        if status != self._last_status:
            self._last_status = status
            self._step.emit(StatusChanged(app=self.name))
        return deleted

    def _publish(self) -> None:
        if self.is_deleting:
            return
        wanted = (self.target.route_prefix, self.ingress)
        if self.published is None or self.published[1] == wanted[1]:
            self.published = wanted
            return
        old, new = (self.deployments.get(id.name) for id in (self.published[1], wanted[1]))
        if old is None or not old.serving() or (new is not None and new.serving()):
            self.published = wanted

    def scale(self) -> None:
        """Compute the numbers of replicas with the policy of the application."""
        assert self.target.autoscaling_policy is not None
        self._step.after("scale_app", self.name, CUSTOM_INTERVAL_S)
        ids = {each.id: [r.id for r in each.serving()] for each in self.deployments.values()}
        contexts = {
            each.id: context
            for each in self.deployments.values()
            if (context := each.scaling.context(ids[each.id])) is not None
        }
        try:
            policy: Any = self._step.load_policy(self.target.autoscaling_policy)
            desired, states = policy(contexts)
        except Exception as error:
            self._step.record(
                "policy_failed",
                f"The autoscaling policy of application {self.name!r} failed: "
                f"{type(error).__name__}: {error}",
                app=self.name,
                level="warning",
            )
            return
        self._apply_policy(desired, states or {}, ids)

    def _apply_policy(
        self,
        desired: Mapping[DeploymentId, float],
        states: Mapping[DeploymentId, Mapping[str, object]],
        ids: Mapping[DeploymentId, list[str]],
    ) -> None:
        for deployment in self.deployments.values():
            id = deployment.id
            if id in desired and deployment.scaling.decide_by(
                desired[id], states.get(id), len(ids[id])
            ):
                deployment.reconcile()

    # -- views

    @property
    def ingress(self) -> DeploymentId:
        """The deployment that takes the application's requests."""
        name = next(each.name for each in self.target.deployments if each.is_ingress)
        return DeploymentId(self.name, name)

    @property
    def is_gone(self) -> bool:
        """True after the end of the last replica of a deleted application."""
        return self.is_deleting and not self.deployments

    def has_failed(self) -> bool:
        """Return True if the rollout of a deployment stopped."""
        return any(each.version.has_failed for each in self.deployments.values())

    def route(self) -> ApplicationRoute | None:
        """Return the route of HTTP requests."""
        if self.published is None:
            return None
        prefix, ingress = self.published
        deployment = self.deployments.get(ingress.name)
        return ApplicationRoute(
            name=self.name,
            route_prefix=prefix,
            ingress=ingress,
            is_asgi=deployment is not None and deployment.is_asgi,
            patterns=() if deployment is None else deployment.patterns,
        )

    def info(self, table_version: int = 0) -> ApplicationInfo:
        """Return the names from which handles are made."""
        return ApplicationInfo(
            name=self.name,
            route_prefix=self.target.route_prefix,
            ingress=self.ingress,
            deployments=tuple(
                DeploymentId(self.name, each.name) for each in self.target.deployments
            ),
            version=self.version,
            table_version=table_version,
        )

    def status(self) -> ApplicationStatus:
        """Return the status."""
        if self.is_deleting:
            return ApplicationStatus.DELETING
        statuses = [deployment_status.status(each) for each in self.deployments.values()]
        if DeploymentStatus.DEPLOY_FAILED in statuses:
            return ApplicationStatus.DEPLOY_FAILED
        if any(_is_unfinished(each) for each in self.deployments.values() if not each.is_deleted):
            return ApplicationStatus.DEPLOYING
        if DeploymentStatus.UNHEALTHY in statuses:
            return ApplicationStatus.UNHEALTHY
        return ApplicationStatus.RUNNING

    def message(self) -> str:
        """Return the problems of the deployments, or the reasons why they wait."""
        lines = [
            f"Deployment {name!r}: {message}"
            for name, each in self.deployments.items()
            if (message := deployment_status.message(each))
        ]
        return "\n".join(lines)


def _is_unfinished(deployment: DeploymentState) -> bool:
    return deployment.is_deploying or deployment.version.has_failed
