"""Actors that all replicas of a deployment share: their names, and access from replicas."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.core.api import ActorHandle, get_actor, get_runtime_context, is_initialized
from syncline.serve.context import replica_context
from syncline.serve.controller.process import NAMESPACE
from syncline.serve.exceptions import RayServeException
from syncline.serve.wire.routes import DeploymentId

_PREFIX = "SERVE_DEPLOYMENT_ACTOR"


def deployment_actor_name(deployment: DeploymentId, name: str) -> str:
    """Return the name of an actor of a deployment in serve's namespace."""
    return f"{_PREFIX}#{deployment.app}#{deployment.name}#{name}"


@dataclass(frozen=True, kw_only=True)
class DeploymentActorContext:
    """Facts about the deployment actor that calls `get_deployment_actor_context`."""

    deployment_id: DeploymentId
    actor_name: str
    """`DeploymentActorConfig.name`."""

    @property
    def app_name(self) -> str:
        """Name of the application."""
        return self.deployment_id.app

    @property
    def deployment(self) -> str:
        """Name of the deployment."""
        return self.deployment_id.name


def get_deployment_actor(actor_name: str) -> ActorHandle:
    """Return the handle of an actor of the calling replica's deployment.

    Raises RayServeException outside of a replica, and ValueError if there is no such actor. After
    a restart of the actor, its old handles fail: ask again.
    """
    context = replica_context()
    if context is None:
        raise RayServeException(
            "`get_deployment_actor()` was called outside of a replica: call it in the constructor "
            "or in a method of a deployment"
        )
    deployment = DeploymentId(context.app_name, context.deployment)
    try:
        return get_actor(deployment_actor_name(deployment, actor_name), NAMESPACE)
    except ValueError:
        raise ValueError(
            f"deployment {deployment.name!r} of application {deployment.app!r} has no running "
            f"actor {actor_name!r}: list it in `deployment_actors`"
        ) from None


def get_deployment_actor_context() -> DeploymentActorContext:
    """Return the names of the deployment actor that runs the calling code.

    Raises RayServeException outside of a deployment actor.
    """
    name = (get_runtime_context().get_actor_name() or "") if is_initialized() else ""
    prefix, _, rest = name.partition("#")
    parts = rest.split("#", 2)
    if prefix != _PREFIX or len(parts) != 3:
        raise RayServeException(
            "`get_deployment_actor_context()` was called outside of a deployment actor: call it in "
            "the actor's constructor or in one of its methods"
        )
    app, deployment, actor = parts
    return DeploymentActorContext(deployment_id=DeploymentId(app, deployment), actor_name=actor)
