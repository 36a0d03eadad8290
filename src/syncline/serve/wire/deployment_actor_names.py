"""Names of deployment actors in serve's namespace. Pure functions."""

from __future__ import annotations

from typing import NamedTuple

from syncline.serve.wire.routes import DeploymentId

PREFIX = "SERVE_DEPLOYMENT_ACTOR#"


class ActorName(NamedTuple):
    """Parts of the name of a deployment actor."""

    deployment: DeploymentId
    code_version: str
    name: str
    """`DeploymentActorConfig.name`."""


def deployment_actor_name(deployment: DeploymentId, code_version: str, name: str) -> str:
    """Return the name of an actor of a deployment in serve's namespace."""
    return f"{PREFIX}{deployment.app}#{deployment.name}#{code_version}#{name}"


def parse_actor_name(text: str) -> ActorName | None:
    """Return the parts of a name; None for the name of another actor."""
    parts = text.removeprefix(PREFIX).split("#", 3)
    if not text.startswith(PREFIX) or len(parts) != 4:
        return None
    app, deployment, code_version, name = parts
    return ActorName(DeploymentId(app, deployment), code_version, name)
