"""Access to the actors that all replicas of a deployment share: `DeploymentActorConfig`."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.core.api import ActorHandle, get_actor, get_runtime_context, is_initialized
from syncline.serve.context import replica_context
from syncline.serve.controller.process import NAMESPACE
from syncline.serve.exceptions import RayServeException
from syncline.serve.wire.deployment_actor_names import deployment_actor_name, parse_actor_name
from syncline.serve.wire.routes import DeploymentId


@dataclass(frozen=True, kw_only=True)
class DeploymentActorContext:
    """Facts about the deployment actor that calls `get_deployment_actor_context`."""

    deployment_id: DeploymentId
    actor_name: str
    """`DeploymentActorConfig.name`."""
    code_version: str | None = None
    """Digest of the code of the deployment; its replicas with this code use the actor."""

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

    Raises RayServeException outside of a replica, and ValueError if the actor does not exist. After
    a restart of the actor, its old handles fail: ask again.
    """
    context = replica_context()
    if context is None:
        raise RayServeException(
            "`get_deployment_actor()` was called outside of a replica: call it in the constructor "
            "or in a method of a deployment"
        )
    deployment = DeploymentId(context.app_name, context.deployment)
    name = deployment_actor_name(deployment, context.code_version or "", actor_name)
    try:
        return get_actor(name, NAMESPACE)
    except ValueError:
        raise ValueError(
            f"deployment {deployment.name!r} of application {deployment.app!r} has no running "
            f"actor {actor_name!r}: list it in `deployment_actors`, or ask again if it is being "
            "restarted"
        ) from None


def get_deployment_actor_context() -> DeploymentActorContext:
    """Return the names of the deployment actor that runs the calling code.

    Raises RayServeException outside of a deployment actor.
    """
    name = (get_runtime_context().get_actor_name() or "") if is_initialized() else ""
    parts = parse_actor_name(name)
    if parts is None:
        raise RayServeException(
            "`get_deployment_actor_context()` was called outside of a deployment actor: call it in "
            "the actor's constructor or in one of its methods"
        )
    return DeploymentActorContext(
        deployment_id=parts.deployment, actor_name=parts.name, code_version=parts.code_version
    )
