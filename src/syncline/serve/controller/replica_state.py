"""A replica, a gang and a version of a deployment, as the controller knows them. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from syncline.core.state_machine import Lifecycle, StateEnum, TransitionTable
from syncline.serve.context import GangContext
from syncline.serve.controller.messages import DeploymentTarget
from syncline.serve.wire.routes import ReplicaRoute


class ReplicaState(StateEnum):
    """State of a replica; the values are those of `schema.ReplicaState`."""

    STARTING = "STARTING"
    """Waits for resources, or its constructor runs."""
    RUNNING = "RUNNING"
    """Takes calls."""
    UPDATING = "UPDATING"
    """Takes calls while user code applies another `user_config`."""
    RECOVERING = "RECOVERING"
    """Takes calls; the controller restarted and has not heard from it."""
    DRAINING = "STOPPING"
    """Finishes its calls, or its process is being killed."""
    STOPPED = "STOPPED"
    """Its process is gone."""


_S = ReplicaState
TRANSITIONS: TransitionTable[ReplicaState] = {
    _S.STARTING: frozenset({_S.RUNNING, _S.DRAINING, _S.STOPPED}),
    _S.RUNNING: frozenset({_S.UPDATING, _S.DRAINING, _S.STOPPED}),
    _S.UPDATING: frozenset({_S.RUNNING, _S.DRAINING, _S.STOPPED}),
    _S.RECOVERING: frozenset({_S.RUNNING, _S.DRAINING, _S.STOPPED}),
    _S.DRAINING: frozenset({_S.STOPPED}),
    _S.STOPPED: frozenset(),
}
SERVING = frozenset({_S.RUNNING, _S.UPDATING, _S.RECOVERING})
"""States of replicas that can take calls."""

IN_PLACE = frozenset(
    {
        "num_replicas",
        "autoscaling_config",
        "user_config",
        "max_ongoing_requests",
        "max_queued_requests",
        "backpressure_config",
        "idempotent",
        "graceful_shutdown_wait_loop_s",
        "graceful_shutdown_timeout_s",
        "health_check_period_s",
        "health_check_timeout_s",
        "logging_config",
        "request_router_config",
        "max_constructor_retry_count",
        "rolling_update_percentage",
        "max_surge_percent",
        "deployment_actors",
    }
)
"""Options that change without new processes; deployment actors are part of the code version."""


def needs_new_processes(before: DeploymentTarget, after: DeploymentTarget) -> bool:
    """Return True if replicas of `before` cannot become replicas of `after`."""
    return before.code_version != after.code_version or any(
        getattr(before.config, each.name) != getattr(after.config, each.name)
        for each in fields(before.config)
        if each.name not in IN_PLACE
    )


@dataclass(slots=True, eq=False)
class Version:
    """Code, options and user configuration of replicas, and their failures."""

    number: int
    """Replicas of another number need other processes."""
    config_number: int
    """Replicas of the same number and another config number need a `Reconfigure`."""
    target: DeploymentTarget
    failures: int = 0
    """Number of failed starts since the last success."""
    crashes: int = 0
    """Number of consecutive replicas that died soon after their start."""
    start_after: float = 0.0
    """Time of the next start at the earliest."""
    error: str = ""
    """Reason of the last failure."""
    has_failed: bool = False
    """True if the rollout stopped because starts failed."""
    was_complete: bool = False
    """True if once all replicas were of this version."""


class Gang:
    """Replicas that start, serve and stop together.

    Args:
        id: Unique id.
        replica_ids: Its replicas by rank.
        pg_name: Name of its placement group; empty if its replicas reserve nothing.
    """

    def __init__(self, id: str, replica_ids: Sequence[str], pg_name: str) -> None:
        self.id = id
        self.replica_ids = list(replica_ids)
        self.pg_name = pg_name
        self.members: list[Replica] = []
        """Replicas whose processes may exist, by rank."""
        self.was_placed = False
        """True once it held its resources."""

    @property
    def is_complete(self) -> bool:
        """True if all of its replicas can take calls."""
        return len(self.members) == len(self.replica_ids) and all(
            each.is_ready for each in self.members
        )

    def context(self, replica_id: str) -> GangContext:
        """Return the gang as one of its replicas sees it."""
        return GangContext(
            gang_id=self.id,
            rank=self.replica_ids.index(replica_id),
            world_size=len(self.replica_ids),
            member_replica_ids=self.replica_ids,
            pg_name=self.pg_name,
        )


@dataclass(slots=True, eq=False)
class Replica:
    """One replica until its process has ended."""

    id: str
    version: Version
    rank: int
    world_size: int
    created_at: float
    gang: Gang | None = None
    """The gang that it starts and stops with; None without gangs."""
    is_restored: bool = False
    """True if an earlier controller started it."""
    lifecycle: Lifecycle[ReplicaState] = field(init=False)
    is_placed: bool = False
    """True once its process exists."""
    route: ReplicaRoute | None = None
    """Its address; None before it is ready."""
    pid: int | None = None
    node_id: str | None = None
    constructor_s: float | None = None
    ready_at: float | None = None
    retired: str = ""
    """Reason why it must be replaced; empty if it may stay."""
    health_failures: int = 0
    note: str = ""
    """Last failed health check, or the resources that it waits for."""
    removed_at: int | None = None
    """First version of the routing table without it."""
    drains: bool = False
    """True after the request to drain."""
    has_drained: bool = False
    """True once its last call ended."""
    ending: str = ""
    """Reason why it is being stopped."""
    update: Version | None = None
    """Target version of a running `Reconfigure`."""

    def __post_init__(self) -> None:
        self.lifecycle = Lifecycle(f"replica {self.id}", TRANSITIONS, _S.STARTING)

    @property
    def state(self) -> ReplicaState:
        """Current state."""
        return self.lifecycle.state

    @property
    def is_ready(self) -> bool:
        """True if it can take calls."""
        return self.lifecycle.state in SERVING

    @property
    def is_serving(self) -> bool:
        """True if routers may send calls to it: it and all others of its gang are ready."""
        return self.lifecycle.state in SERVING and (self.gang is None or self.gang.is_complete)

    @property
    def is_starting(self) -> bool:
        """True until it serves for the first time."""
        state = self.lifecycle.state
        return state is _S.STARTING or (state in SERVING and not self.is_serving)

    @property
    def waits(self) -> bool:
        """True while it waits for resources."""
        return self.lifecycle.state is _S.STARTING and not any(each.is_placed for each in self.unit)

    @property
    def unit(self) -> Sequence[Replica]:
        """The replicas that start and stop together: those of its gang, or itself."""
        return (self,) if self.gang is None else tuple(self.gang.members)

    @property
    def siblings(self) -> list[Replica]:
        """The other replicas of its gang that are not being stopped."""
        return [
            each
            for each in self.unit
            if each is not self and each.lifecycle.state not in (_S.DRAINING, _S.STOPPED)
        ]
