"""Messages between the controller and the other processes of serve.

Every message is a frozen dataclass, pickled in a NOTICE, REQUEST or REPLY frame. Notices have no
answer. Each request class names its reply; a request that fails is answered by FAILURE with
a packed exception.

- Replicas connect with role "replica" and their replica id, proxies with role "proxy" and their
  proxy id, all others with role "caller". Each process has one connection to the controller. It
  connects again after the controller died, to the same address with the same key, and then sends
  its messages of state again: a replica `ReplicaReady` if it is ready, a proxy `ProxyReady`, a
  subscriber `Subscribe` and a complete `LoadReport`.
- Any of these processes may subscribe to the routing table; a `TableUpdate` of `wire.routes` is
  sent as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from syncline.core.message import Message
from syncline.records import dataclass
from syncline.serve.wire.routes import Address, DeploymentId

if TYPE_CHECKING:
    from syncline.serve.config import (
        DeploymentConfig,
        HTTPOptions,
        LoggingConfig,
        TracingConfig,
        gRPCOptions,
    )

# -- targets


@dataclass(frozen=True, kw_only=True)
class DeploymentTarget:
    """Target of a deployment, set by a program."""

    name: str
    func_or_class: bytes
    """`core.serialization.pack_callable` of the user's class or function."""
    init_args: bytes
    """The pickled pair (args, kwargs) of the constructor; Applications are DeploymentHandles."""
    code_version: str
    """Digest of `func_or_class` and `init_args`; another one replaces the replicas."""
    config: DeploymentConfig
    """Options without objects of the program, which the controller might not be able to import.

    The controller compares them field by field: see `replica_state.IN_PLACE`.
    """
    is_ingress: bool = False
    """True for the deployment that takes the application's requests."""
    request_router: bytes | None = None
    """The pickled RequestRouterConfig if it names another class than the default."""
    autoscaling_policy: bytes | None = None
    """`pack_callable` of a policy function, called with `policy_kwargs` of the configuration.

    None: `config.autoscaling_config.policy` is the default one or an import path.
    """


@dataclass(frozen=True, kw_only=True)
class ApplicationTarget:
    """Target of an application, set by a program."""

    name: str
    deployments: tuple[DeploymentTarget, ...]
    """Exactly one is the ingress."""
    route_prefix: str | None = "/"
    """None: no HTTP."""
    external_scaler_enabled: bool = False
    """True if `SetReplicas` requests are allowed."""
    autoscaling_policy: bytes | None = None
    """A pickled policy for all autoscaled deployments together; None: each has its own."""
    import_path: str | None = None
    """Origin of the application, for `serve config`; None: a program that called `run`."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the function at `import_path`, for `serve config`."""


# -- replica -> controller, notices


class ReplicaReady(Message):
    """The constructor, `reconfigure` and the first health check succeeded; the replica listens."""

    replica_id: str
    address: Address
    ledger_path: str
    is_asgi: bool
    docs_path: str | None
    pid: int
    node_id: str
    constructor_s: float
    """Seconds that the constructor took."""
    patterns: tuple[str, ...] = ()
    """Patterns of the paths of an ASGI application; see `replica.route_patterns`."""


class ReplicaFailed(Message):
    """The constructor, `reconfigure` or the first health check failed; the process will exit."""

    replica_id: str
    error: bytes
    """`core.serialization.pack_error` of the exception."""
    traceback: str
    """The traceback as text, the user's frame last."""


class Reconfigured(Message):
    """A `Reconfigure` was applied, or failed with `traceback`."""

    replica_id: str
    version: int
    """`Reconfigure.version`."""
    traceback: str | None = None
    """The traceback of an exception in user code, as text; None after success."""


class HealthReport(Message):
    """Answer to `CheckHealth`; also sent unasked when the replica notices a change."""

    replica_id: str
    healthy: bool
    message: str = ""
    """The error of `check_health`; or the frame that blocks the event loop."""


class AutoscalingStats(Message):
    """Result of the user's `record_autoscaling_stats`."""

    replica_id: str
    stats: Mapping[str, float]


class RoutingStats(Message):
    """Result of the user's `record_routing_stats`, published to all callers."""

    replica_id: str
    stats: Mapping[str, object]


class Drained(Message):
    """A draining replica finished its last call and will exit."""

    replica_id: str


# -- controller -> replica, notices


class Drain(Message):
    """Refuse new calls, finish those in flight, send `Drained`, run `__del__`, and exit.

    A replica of a gang waits for `Exit` before `__del__`, as others may need it for their calls.
    `run()` returns then. The controller kills the process if it is not gone `timeout_s` plus a
    small margin later.
    """

    timeout_s: float


class Exit(Message):
    """All replicas of the gang have sent `Drained`: run `__del__` and exit."""


class Reconfigure(Message):
    """Apply new options; answered by `Reconfigured`.

    User code `reconfigure(user_config, rank=)` is called only if `user_config_changed` is True, or
    if the rank or world size changed and it takes a `rank`.
    """

    version: int
    user_config: Any
    user_config_changed: bool
    max_ongoing_requests: int
    graceful_shutdown_timeout_s: float
    health_check_timeout_s: float
    rank: int
    world_size: int
    logging_config: Any = None


class CheckHealth(Message):
    """Run the user's `check_health` and answer with a `HealthReport`."""


# -- subscriber -> controller, notices


class Subscribe(Message):
    """Send the complete routing table now, and every change from now on."""


class Acknowledge(Message):
    """The router of the subscriber applied all updates up to `version`.

    From then on the subscriber sends no new calls to replicas that were removed from the table. A
    removed replica is drained once all subscribers have acknowledged or disconnected.
    """

    version: int


class DeploymentLoad(NamedTuple):
    """The calls that one caller has for one deployment."""

    queued: int
    """Calls that were not sent to a replica."""
    ongoing: Mapping[str, int]
    """By replica id: calls that were sent and have no answer."""


class LoadReport(Message):
    """The load that the sender causes: deployments whose counts changed, at most every 50 ms.

    A deployment without calls is reported once, as `DeploymentLoad(0, {})`.
    """

    loads: Mapping[DeploymentId, DeploymentLoad]


class PoisonRequest(Message):
    """A call was given up because it ended two replicas."""

    deployment: DeploymentId
    request_id: str
    replica_ids: tuple[str, ...]


# -- proxy <-> controller, notices


class ProxyReady(Message):
    """The proxy accepts requests."""

    proxy_id: str
    node_id: str
    pid: int
    http_address: tuple[str, int] | None
    """Host and port on which it listens."""
    grpc_address: tuple[str, int] | None = None


class ProxyFailed(Message):
    """The proxy cannot start, for example because the port is taken; it will exit."""

    proxy_id: str
    error: bytes
    """`core.serialization.pack_error` of the exception."""
    traceback: str


class DrainProxy(Message):
    """Accept no more connections, finish the requests in flight, and exit: `run()` returns."""

    timeout_s: float


# -- program -> controller, requests


@dataclass(frozen=True, kw_only=True)
class StartProxies:
    """Start HTTP on the nodes of `location`; replied by None when the first proxy listens.

    If proxies run with other options, the reply is the text of a warning. Fails with the error of
    the proxy, such as OSError for a port in use.
    """

    location: str
    """A value of `ProxyLocation`: "Disabled", "HeadOnly", "EveryNode"."""
    http: HTTPOptions
    grpc: gRPCOptions | None = None
    logging_config: LoggingConfig | None = None
    """Logs of the proxies; None for the default."""
    tracing_config: TracingConfig | None = None
    """Traces of proxies and of replicas that start later."""
    replace: bool = False
    """True to apply other options to running proxies instead of warning."""


class Deploy(Message):
    """Set the targets of applications; replied by the dict of their versions by name.

    The reply is sent when the targets are stored; `WaitForApplication` waits for the rollout. An
    application that is unchanged keeps its version. Fails with RayServeException if two
    applications have the same route prefix.
    """

    applications: tuple[ApplicationTarget, ...]
    replace_all: bool = False
    """True to delete the applications that are not named here, as config files do."""


class WaitForApplication(Message):
    """Replied by the `ApplicationInfo` when the application is RUNNING.

    Fails with RuntimeError if this version does not start, is replaced, or is deleted; the message
    contains the traceback of the constructor.
    """

    name: str
    version: int


class DeleteApplications(Message):
    """Delete applications; replied by None when their replicas are gone. Unknown names: nothing."""

    names: tuple[str, ...]


class GetApplication(Message):
    """Replied by the `ApplicationInfo`, or None if the application does not exist."""

    name: str


class ApplicationInfo(Message):
    """Names in an application, from which handles are made."""

    name: str
    route_prefix: str | None
    ingress: DeploymentId
    deployments: tuple[DeploymentId, ...]
    version: int
    table_version: int = 0
    """Version of the routing table that has its replicas, in replies to `WaitForApplication`."""


class GetStatus(Message):
    """Replied by the `schema.ServeStatus`."""


class GetDetails(Message):
    """Replied by the `ServeDetails` of the dashboard."""


class ReplicaDetails(Message):
    """State of a replica for the dashboard."""

    replica_id: str
    state: str
    """A value of `schema.ReplicaState`."""
    pid: int | None
    node_id: str | None
    actor_id: str | None
    started_s: float
    """Seconds since the epoch."""
    constructor_s: float | None
    ongoing: int
    """Calls in flight, as callers report them."""
    rank: int
    message: str = ""
    """Last failed health check, or the resources that it waits for."""


class DeploymentDetails(Message):
    """State of a deployment for the dashboard."""

    id: DeploymentId
    target_replicas: int
    queued: int
    """Calls that callers could not send yet."""
    replicas: tuple[ReplicaDetails, ...]
    last_decision: str = ""
    """The last decision of the autoscaler, with its numbers."""


class ServeDetails(Message):
    """The complete state of the controller, for the dashboard and `serve status -v`."""

    status: Any
    """The `schema.ServeStatus`."""
    deployments: tuple[DeploymentDetails, ...]
    subscribers: tuple[str, ...]
    """Role and id of each connected process."""
    table_version: int
    events: tuple[str, ...]
    """Recent events, oldest first."""
    applications: tuple[ApplicationInfo, ...] = ()
    http_addresses: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Host and port of the proxy by node id."""


class GetRecordPath(Message):
    """Replied by the run directory that the controller writes; empty without a record."""


class GetStack(Message):
    """Replied by the stacks of the threads of a replica, as text."""

    replica_id: str


class GetTarget(Message):
    """Replied by the `ApplicationTarget` as last deployed, or None."""

    name: str


class SetReplicas(Message):
    """Set the number of replicas of a deployment (external scaler); replied by None.

    Fails with RayServeException if the application does not allow it or does not exist.
    """

    deployment: DeploymentId
    count: int


class RestartReplica(Message):
    """Start a replacement of a replica, then drain it; replied by None.

    Fails with KeyError if the replica does not exist.
    """

    replica_id: str


class Shutdown(Message):
    """Drain and end all replicas, then the proxies; replied by None when all are gone.

    The controller stays and can be killed then; `process.stop_controller` does both.
    """


FromReplica = (
    ReplicaReady
    | ReplicaFailed
    | Reconfigured
    | HealthReport
    | AutoscalingStats
    | RoutingStats
    | Drained
)
ToReplica = Drain | Exit | Reconfigure | CheckHealth
FromSubscriber = Subscribe | Acknowledge | LoadReport | PoisonRequest
FromProxy = ProxyReady | ProxyFailed
ToProxy = DrainProxy
Request = (
    StartProxies
    | Deploy
    | WaitForApplication
    | DeleteApplications
    | GetApplication
    | GetStatus
    | GetDetails
    | GetRecordPath
    | GetStack
    | GetTarget
    | SetReplicas
    | RestartReplica
    | Shutdown
)
