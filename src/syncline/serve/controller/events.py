"""Events and instructions of `state.ControllerMachine`, besides the messages of `messages`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from syncline.core.message import Message
from syncline.serve.config import DeploymentActorConfig
from syncline.serve.context import GangContext
from syncline.serve.controller.messages import (
    AutoscalingStats,
    CheckHealth,
    DeleteApplications,
    Deploy,
    DeploymentLoad,
    DeploymentTarget,
    Drained,
    Exit,
    HealthReport,
    PoisonRequest,
    ProxyFailed,
    ProxyReady,
    Reconfigure,
    Reconfigured,
    ReplicaFailed,
    ReplicaReady,
    RestartReplica,
    RoutingStats,
    SetReplicas,
    Shutdown,
    StartProxies,
)
from syncline.serve.wire.routes import DeploymentId, TableUpdate

# -- events


class ReplicaPlaced(Message):
    """The process of a replica exists and holds its resources."""

    replica_id: str


class StartRefused(Message):
    """A replica can never start, for example because its resources do not exist."""

    replica_id: str
    reason: str


class StartInspected(Message):
    """Answer to `InspectStart`: available resources, or the stack of the constructor."""

    replica_id: str
    text: str
    lacks_resources: bool = False
    """True if the resources of a replica without a process are not free."""


class ReplicaEnded(Message):
    """The process of a replica is gone."""

    replica_id: str
    cause: str
    """Exit code or signal and the last lines of its log; empty after an orderly exit."""


class SubscriberJoined(Message):
    """A process subscribed to the routing table."""

    subscriber: str
    """Its connection."""
    process: str
    """Its id, which stays the same when it connects again."""


class SubscriberLeft(Message):
    """A subscriber disconnected."""

    subscriber: str


class Acknowledged(Message):
    """A subscriber has applied the updates up to a version."""

    subscriber: str
    version: int


class Load(Message):
    """A subscriber reports the calls that it has for some deployments."""

    subscriber: str
    loads: Mapping[DeploymentId, DeploymentLoad]


class ProxyEnded(Message):
    """The process of a proxy is gone."""

    proxy_id: str
    cause: str


class DeploymentActorReady(Message):
    """The constructor of a deployment actor has returned, or the actor still lives."""

    actor_id: str


class DeploymentActorFailed(Message):
    """A deployment actor did not start; its process is gone."""

    actor_id: str
    reason: str
    """Traceback of the constructor, or why the actor cannot be created."""
    is_final: bool
    """True if no other attempt can succeed."""


class DeploymentActorInspected(Message):
    """Answer to `InspectDeploymentActor`."""

    actor_id: str
    lacks_resources: bool
    """True if the actor has no process and its resources are not available."""
    text: str
    """Needed and available resources."""


class DeploymentActorEnded(Message):
    """The process of a deployment actor is gone."""

    actor_id: str
    cause: str


class NodesChanged(Message):
    """The nodes that are alive."""

    nodes: tuple[str, ...]
    draining: Mapping[str, float | None] = field(default_factory=dict)
    """Nodes that will leave, with the seconds that are left; None if unknown."""


class Tick(Message):
    """Time has passed: handle the deadlines that are due."""


Event = (
    ReplicaPlaced
    | StartRefused
    | StartInspected
    | ReplicaReady
    | ReplicaFailed
    | ReplicaEnded
    | Reconfigured
    | HealthReport
    | AutoscalingStats
    | RoutingStats
    | Drained
    | SubscriberJoined
    | SubscriberLeft
    | Acknowledged
    | Load
    | PoisonRequest
    | ProxyReady
    | ProxyFailed
    | ProxyEnded
    | DeploymentActorReady
    | DeploymentActorFailed
    | DeploymentActorInspected
    | DeploymentActorEnded
    | NodesChanged
    | Deploy
    | DeleteApplications
    | SetReplicas
    | RestartReplica
    | StartProxies
    | Shutdown
    | Tick
)

# -- instructions


class StartReplica(Message):
    """Create the actor of a replica.

    Answered by `ReplicaPlaced` and later `ReplicaReady` or `ReplicaFailed`, or by `StartRefused`;
    in any case by one `ReplicaEnded` at its end, except after `StartRefused`.
    """

    replica_id: str
    deployment: DeploymentId
    target: DeploymentTarget
    route_prefix: str | None
    """Of the application, for the ingress."""
    rank: int
    world_size: int
    config_number: int
    """Number of the user configuration in `target`."""
    gang: GangContext | None = None
    """Replicas with which it shares a placement group; all of them are started together."""


class SendToReplica(Message):
    """Send a message to a replica; it is dropped if the replica is not connected."""

    replica_id: str
    message: Reconfigure | CheckHealth | Exit


class DrainReplica(Message):
    """Drain a replica that has been removed from all routers: finish its calls and exit."""

    replica_id: str
    timeout_s: float


class KillReplica(Message):
    """Kill the process of a replica; `ReplicaEnded` follows."""

    replica_id: str
    reason: str


class InspectStart(Message):
    """Inspect a slow start; answered by `StartInspected`."""

    replica_id: str
    kind: Literal["waits", "runs"]
    """It waits for resources, or its constructor runs."""


class Publish(Message):
    """Send an update to one subscriber, or to all."""

    update: TableUpdate
    subscriber: str | None = None
    """None: all."""


class StartProxy(Message):
    """Create the actor of a proxy on a node; `ProxyEnded` follows at its end."""

    proxy_id: str
    node_id: str
    options: StartProxies


class StopProxy(Message):
    """Drain a proxy, or kill it if `force`."""

    proxy_id: str
    force: bool


class StartDeploymentActor(Message):
    """Create an actor that the replicas of a deployment share.

    Answered by `DeploymentActorReady`, and `DeploymentActorEnded` at its end; or by
    `DeploymentActorFailed`.
    """

    actor_id: str
    """Its name in serve's namespace."""
    config: DeploymentActorConfig
    runtime_env: Any
    """Default environment, from the deployment; None or empty: none."""


class InspectDeploymentActor(Message):
    """Inspect a slow start; answered by `DeploymentActorInspected`."""

    actor_id: str
    needed: Mapping[str, float]
    """Resources of the actor."""


class KillDeploymentActor(Message):
    """Kill an actor; `DeploymentActorEnded` or `DeploymentActorFailed` follows."""

    actor_id: str


class RecordEvent(Message):
    """Write an event to the record of the session."""

    kind: str
    """Machine-readable kind, such as "replica_started"."""
    message: str
    deployment: DeploymentId | None = None
    app: str | None = None
    replica_id: str | None = None
    level: Literal["debug", "info", "warning", "error"] = "info"
    data: Mapping[str, Any] = field(default_factory=dict)


class StatusChanged(Message):
    """The status of an application, or of the proxies if `app` is None, may have changed."""

    app: str | None


class Save(Message):
    """Save a snapshot, before the instructions that follow are executed."""


Instruction = (
    StartReplica
    | SendToReplica
    | DrainReplica
    | KillReplica
    | InspectStart
    | Publish
    | StartProxy
    | StopProxy
    | StartDeploymentActor
    | InspectDeploymentActor
    | KillDeploymentActor
    | RecordEvent
    | StatusChanged
    | Save
)
