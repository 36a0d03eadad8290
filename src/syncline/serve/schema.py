"""States of applications, deployments, replicas and proxies, as `status()` returns them.

The classes of configuration files and `LoggingConfig` are exported here as well; see
`config_file.py` and `logging_config.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from enum import Enum
from typing import Any

from syncline.records import dataclass
from syncline.serve.config_file import (
    DeploymentSchema,
    HTTPOptionsSchema,
    ServeApplicationSchema,
    ServeDeploySchema,
    gRPCOptionsSchema,
)
from syncline.serve.logging_config import EncodingType, LoggingConfig, TracingConfig

__all__ = [
    "ApplicationStatus",
    "ApplicationStatusOverview",
    "DeploymentSchema",
    "DeploymentStatus",
    "DeploymentStatusOverview",
    "DeploymentStatusTrigger",
    "EncodingType",
    "HTTPOptionsSchema",
    "LoggingConfig",
    "ProxyStatus",
    "ReplicaState",
    "ServeApplicationSchema",
    "ServeDeploySchema",
    "ServeStatus",
    "TracingConfig",
    "gRPCOptionsSchema",
]


class ApplicationStatus(str, Enum):
    """State of an application."""

    NOT_STARTED = "NOT_STARTED"
    DEPLOYING = "DEPLOYING"
    """Some replicas of the latest version do not run yet."""
    DEPLOY_FAILED = "DEPLOY_FAILED"
    """The latest version does not start; an earlier one still runs, if there is one."""
    RUNNING = "RUNNING"
    UNHEALTHY = "UNHEALTHY"
    """Replicas failed after the application was RUNNING."""
    DELETING = "DELETING"


class DeploymentStatus(str, Enum):
    """State of a deployment."""

    UPDATING = "UPDATING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    UPSCALING = "UPSCALING"
    DOWNSCALING = "DOWNSCALING"


class DeploymentStatusTrigger(str, Enum):
    """Event that led to the state of a deployment."""

    UNSPECIFIED = "UNSPECIFIED"
    CONFIG_UPDATE_STARTED = "CONFIG_UPDATE_STARTED"
    CONFIG_UPDATE_COMPLETED = "CONFIG_UPDATE_COMPLETED"
    UPSCALE_COMPLETED = "UPSCALE_COMPLETED"
    DOWNSCALE_COMPLETED = "DOWNSCALE_COMPLETED"
    AUTOSCALING = "AUTOSCALING"
    REPLICA_STARTUP_FAILED = "REPLICA_STARTUP_FAILED"
    DEPLOYMENT_ACTOR_FAILED = "DEPLOYMENT_ACTOR_FAILED"
    HEALTH_CHECK_FAILED = "HEALTH_CHECK_FAILED"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    DELETING = "DELETING"


class ReplicaState(str, Enum):
    """State of a replica."""

    STARTING = "STARTING"
    """Waits for resources, or runs its constructor."""
    UPDATING = "UPDATING"
    """Runs `reconfigure` with a new `user_config`."""
    RECOVERING = "RECOVERING"
    """Was found by a restarted controller and has not answered yet."""
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    """Finishes its requests."""
    PENDING_MIGRATION = "PENDING_MIGRATION"
    """Runs on a node that is about to end; a replacement is starting."""


class ProxyStatus(str, Enum):
    """State of a proxy."""

    STARTING = "STARTING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DRAINING = "DRAINING"
    DRAINED = "DRAINED"


@dataclass(frozen=True)
class DeploymentStatusOverview:
    """State of a deployment and of its replicas."""

    status: DeploymentStatus
    status_trigger: DeploymentStatusTrigger
    replica_states: Mapping[ReplicaState, int]
    """Number of replicas by state, without zeros."""
    message: str


@dataclass(frozen=True)
class ApplicationStatusOverview:
    """State of an application and of its deployments."""

    status: ApplicationStatus
    message: str
    """Cause of a failure, with the traceback of the constructor."""
    last_deployed_time_s: float
    """Time of the latest `run`, in seconds since the epoch."""
    deployments: Mapping[str, DeploymentStatusOverview]
    """By name."""


@dataclass(frozen=True)
class ServeStatus:
    """State of serve; empty if it does not run."""

    proxies: Mapping[str, ProxyStatus] = field(default_factory=dict)
    """By node id."""
    applications: Mapping[str, ApplicationStatusOverview] = field(default_factory=dict)
    """By name."""
    target_capacity: float | None = None
    """Percentage of the replicas that a configuration file asks for; None: all."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and strings, for JSON and YAML."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return value
