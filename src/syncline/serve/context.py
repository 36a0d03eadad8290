"""Context of user code: its replica and the current request.

`get_replica_context` is public. The request context is a context variable: tasks and threads that
user code starts with a copied context inherit it. Handles read it, so that calls inherit the
request id, the deadline and the cancellation of the request that makes them.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import field
from typing import Any, Protocol

from syncline.records import dataclass
from syncline.serve.exceptions import RayServeException
from syncline.serve.wire.routes import DeploymentId


class ReplicaRank(int):
    """Index of a replica among those of its deployment, from 0."""

    @property
    def rank(self) -> int:
        """The index, under the name that programs for Ray use."""
        return int(self)


@dataclass(frozen=True, kw_only=True)
class ReplicaID:
    """Identity of a replica."""

    unique_id: str
    deployment_id: DeploymentId

    def __str__(self) -> str:
        return self.unique_id


@dataclass(frozen=True, kw_only=True)
class GangContext:
    """The gang of a replica, whose replicas start and stop together."""

    gang_id: str
    """Unique id; a replacement gang has a different id."""
    rank: int
    """Index of the replica in its gang, from 0."""
    world_size: int
    """Number of replicas of the gang."""
    member_replica_ids: list[str]
    """Ids of its replicas, by rank."""
    pg_name: str = ""
    """Name of its placement group; empty if its replicas reserve nothing."""


@dataclass(frozen=True, kw_only=True)
class ReplicaContext:
    """Information about the replica that calls `get_replica_context`."""

    replica_id: ReplicaID
    servable_object: Any = None
    """The instance of the user's class, or the function; None while the constructor runs."""
    rank: ReplicaRank = field(default_factory=ReplicaRank)
    world_size: int = 1
    """Target number of replicas of the deployment."""
    code_version: str | None = None
    """Digest of the code of the deployment."""
    gang_context: GangContext | None = None
    """The gang of the replica; None without `gang_scheduling_config`."""

    @property
    def app_name(self) -> str:
        """Name of the application."""
        return self.replica_id.deployment_id.app

    @property
    def deployment(self) -> str:
        """Name of the deployment."""
        return self.replica_id.deployment_id.name

    @property
    def replica_tag(self) -> str:
        """Id of the replica as text."""
        return self.replica_id.unique_id


class Cancellable(Protocol):
    """A call made by the request."""

    def cancel(self) -> object:
        """Cancel the call if it has not ended."""


class RequestContext:
    """Information about the request that user code handles."""

    __slots__ = (
        "_children",
        "app_name",
        "batch_wait_s",
        "deadline",
        "multiplexed_model_id",
        "request_id",
        "route",
        "session_id",
    )

    def __init__(
        self,
        *,
        request_id: str = "",
        route: str = "",
        app_name: str = "",
        multiplexed_model_id: str = "",
        session_id: str = "",
        deadline: float | None = None,
    ) -> None:
        self.request_id = request_id
        self.route = route
        self.app_name = app_name
        self.multiplexed_model_id = multiplexed_model_id
        self.session_id = session_id
        self.deadline = deadline
        """Time of `time.monotonic()` (and `loop.time()`) at which the request is cancelled."""
        self.batch_wait_s = 0.0
        """Seconds that the request waited for batches to start."""
        self._children: dict[Cancellable, None] | None = None

    def add_child(self, call: Cancellable) -> None:
        """Cancel `call` when this request is cancelled, unless it was removed."""
        if self._children is None:
            self._children = {}
        self._children[call] = None

    def remove_child(self, call: Cancellable) -> None:
        """Remove a call that has ended."""
        if self._children is not None:
            self._children.pop(call, None)

    def cancel_children(self) -> None:
        """Cancel the unfinished calls of the request."""
        children, self._children = self._children, None
        for call in children or ():
            call.cancel()


request_context: ContextVar[RequestContext | None] = ContextVar("request_context", default=None)
"""The request that the running code handles; None outside of a replica."""

_replica: ReplicaContext | None = None
local_replica: ContextVar[ReplicaContext | None] = ContextVar("local_replica", default=None)
"""The replica that the running code belongs to, where several run in one process (see `local`)."""


def set_replica_context(context: ReplicaContext | None) -> None:
    """Set the replica of this process; None when it has ended."""
    global _replica
    _replica = context


def replica_context() -> ReplicaContext | None:
    """Return the context of this process's replica; None in other processes."""
    return local_replica.get() or _replica


def get_replica_context() -> ReplicaContext:
    """Return the names, the id and the rank of the replica that runs the calling code.

    Raises RayServeException outside of a replica.
    """
    context = replica_context()
    if context is None:
        raise RayServeException(
            "`get_replica_context()` was called outside of a replica: call it in the constructor "
            "or in a method of a deployment"
        )
    return context
