"""Views of a deployment: its route for callers, and its status for users. Pure functions."""

from __future__ import annotations

from syncline.core.state_machine import StateEnum
from syncline.serve.controller.deployment_state import DeploymentState
from syncline.serve.wire.routes import DeploymentRoute


class DeploymentStatus(StateEnum):
    """Status of a deployment; the values are those of `schema.DeploymentStatus`."""

    UPDATING = "UPDATING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    UPSCALING = "UPSCALING"
    DOWNSCALING = "DOWNSCALING"


def route(deployment: DeploymentState) -> DeploymentRoute:
    """Return the data from which routers send calls to the deployment."""
    target = deployment.active.target
    config = target.config
    replicas = tuple(each.route for each in deployment.serving() if each.route is not None)
    return DeploymentRoute(
        id=deployment.id,
        replicas=replicas,
        max_ongoing_requests=config.max_ongoing_requests,
        max_queued_requests=config.max_queued_requests,
        backpressure_status=config.backpressure_config.status_code,
        retry_after_s=config.backpressure_config.retry_after_s,
        idempotent=config.idempotent,
        max_replicas_can_be_zero=deployment.scaling.may_be_zero,
        request_router=target.request_router,
        unavailable=None if replicas else _unavailable(deployment),
    )


def _unavailable(deployment: DeploymentState) -> str | None:
    if not deployment.active.has_failed:
        return None
    starts = any(each.is_starting for each in deployment.replicas.values())
    return None if starts else deployment.active.error


def status(deployment: DeploymentState) -> DeploymentStatus:
    """Return the status."""
    serving, wanted = len(deployment.serving()), deployment.wanted
    if deployment.is_deleted:
        return DeploymentStatus.UPDATING
    if deployment.version.has_failed:
        return DeploymentStatus.DEPLOY_FAILED
    if deployment.is_deploying:
        if not deployment.version.was_complete or serving == wanted:
            return DeploymentStatus.UPDATING
        return _direction(serving, wanted)
    if (deployment.trouble and serving < wanted) or actor_trouble(deployment):
        return DeploymentStatus.UNHEALTHY
    return DeploymentStatus.HEALTHY if serving == wanted else _direction(serving, wanted)


def actor_trouble(deployment: DeploymentState) -> str:
    """Return the reason why required actors do not run, or an empty text."""
    return deployment.actors.trouble(deployment.active.target)


def _direction(serving: int, wanted: int) -> DeploymentStatus:
    return DeploymentStatus.UPSCALING if serving < wanted else DeploymentStatus.DOWNSCALING


def trigger(deployment: DeploymentState) -> str:
    """Return the cause of the status, a value of `schema.DeploymentStatusTrigger`."""
    current = status(deployment)
    if deployment.is_deleted:
        return "DELETING"
    has_failed = current in (DeploymentStatus.DEPLOY_FAILED, DeploymentStatus.UNHEALTHY)
    if has_failed and (deployment.actor_failed or actor_trouble(deployment)):
        return "DEPLOYMENT_ACTOR_FAILED"
    if current is DeploymentStatus.DEPLOY_FAILED:
        return "REPLICA_STARTUP_FAILED"
    if current is DeploymentStatus.UNHEALTHY:
        failed = deployment.active.failures > 0
        return "REPLICA_STARTUP_FAILED" if failed else "HEALTH_CHECK_FAILED"
    if deployment.is_deploying:
        return "CONFIG_UPDATE_STARTED"
    if current is not DeploymentStatus.HEALTHY:
        return "AUTOSCALING"
    return deployment.scaling.last_trigger


def message(deployment: DeploymentState) -> str:
    """Return the problem of the deployment, or the reason why it waits; empty without one."""
    version, serving = deployment.version, len(deployment.serving())
    if version.has_failed:
        kept = f" ({serving} replica(s) serve on)" if serving else ""
        tries = f"{version.failures} failed start(s)"
        return f"The rollout stopped after {tries}{kept}: {version.error}"
    if deployment.is_deploying and version.failures:
        return f"{version.failures} start(s) failed, trying again: {version.error}"
    if deployment.trouble and serving < deployment.wanted:
        return deployment.trouble
    if trouble := actor_trouble(deployment):
        return trouble
    notes = [each.note for each in deployment.replicas.values() if each.note]
    return "; ".join(notes[:3])
