"""`ReplicaConfig`: everything that the controller tells a replica at its start."""

from __future__ import annotations

from typing import Any

from syncline.records import dataclass
from syncline.serve.context import GangContext
from syncline.serve.logging_config import TracingConfig
from syncline.serve.wire.routes import Address, DeploymentId


@dataclass(frozen=True, kw_only=True)
class ReplicaConfig:
    """Everything that a replica needs to start. The controller makes it."""

    replica_id: str
    deployment: DeploymentId
    socket_path: str
    """Unix socket to listen on."""
    ledger_path: str
    key: bytes
    """Key of the session."""
    controller: Address
    func_or_class: bytes
    """`core.serialization.pack_callable` of the user's class or function."""
    init_args: bytes
    """The pickled pair (args, kwargs) of the constructor."""
    user_config: Any = None
    max_ongoing_requests: int = 5
    graceful_shutdown_timeout_s: float = 20.0
    health_check_timeout_s: float = 30.0
    logging_config: Any = None
    tracing_config: TracingConfig | None = None
    routing_stats_period_s: float = 10.0
    """Seconds between calls of the user's `record_routing_stats`."""
    routing_stats_timeout_s: float = 30.0
    """Seconds until such a call counts as failed."""
    route_prefix: str | None = None
    rank: int = 0
    world_size: int = 1
    """Number of replicas that the deployment should have."""
    code_version: str | None = None
    """`DeploymentTarget.code_version`."""
    gang: GangContext | None = None
    """Replicas with which it starts and stops; None: none."""
