"""Routing data that the controller publishes: applications, deployments, and their replicas.

All classes are serializable values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from syncline.records import dataclass


class DeploymentId(NamedTuple):
    """Key of a deployment."""

    app: str
    name: str

    def __str__(self) -> str:
        return f"{self.app}#{self.name}"


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a process of serve listens."""

    node_id: str
    unix_path: str
    """Unix socket for processes of the same node."""
    tcp: tuple[str, int] | None = None
    """Host and port for processes of other nodes; None on an engine of one machine."""


@dataclass(frozen=True, kw_only=True)
class ReplicaRoute:
    """A replica that takes calls."""

    replica_id: str
    """`APP#DEPLOYMENT#SUFFIX`, unique over all time."""
    address: Address
    ledger_path: str
    """File of the calls that have begun; readable on the same node."""
    routing_stats: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Last result of the user's `record_routing_stats`, for custom request routers."""


@dataclass(frozen=True, kw_only=True)
class DeploymentRoute:
    """Data from which a router sends calls to a deployment."""

    id: DeploymentId
    replicas: tuple[ReplicaRoute, ...] = ()
    max_ongoing_requests: int = 5
    """Limit of each replica."""
    max_queued_requests: int = -1
    """Limit of the queue in each caller; -1: none."""
    backpressure_status: int = 503
    retry_after_s: float | None = None
    """Seconds for the Retry-After header of a refused request."""
    idempotent: bool = False
    """True if a call that had begun on a replica that died may run again."""
    max_replicas_can_be_zero: bool = False
    """True if the deployment scales to zero, so that a queued call starts a replica."""
    request_router: bytes | None = None
    """A pickled `RequestRouterConfig` with another class than the default; None for the default."""
    unavailable: str | None = None
    """Reason why calls fail immediately, such as a failed constructor; None if they may wait."""


@dataclass(frozen=True, kw_only=True)
class ApplicationRoute:
    """An application that takes HTTP requests."""

    name: str
    route_prefix: str | None
    """None: no HTTP."""
    ingress: DeploymentId
    is_asgi: bool
    """True if the ingress is an ASGI application; else a callable that takes a Request."""
    patterns: tuple[str, ...] = ()
    """Patterns of its paths below the prefix, such as "/users/{id}"."""


@dataclass(frozen=True, kw_only=True)
class TableUpdate:
    """A change of the routing table."""

    version: int
    deployments: tuple[DeploymentRoute, ...] = ()
    """Deployments that are new or have changed."""
    removed: tuple[DeploymentId, ...] = ()
    applications: tuple[ApplicationRoute, ...] | None = None
    """All applications; None if unchanged."""
    departures: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Replicas that left the table with this update, and why."""
    is_complete: bool = False
    """True if there are no deployments besides these; always for the first update."""
