"""Base classes of custom request routers, which choose the replica for each call of a deployment.

A subclass of `RequestRouter` is named by `RequestRouterConfig(request_router_class=...)`. Each
process that calls the deployment (proxy, replica, program) has its own instance. Its
`choose_replicas` runs on an event loop, once for each call that could be sent: some replica has
a free slot. The call goes to the first group of the result that has a free slot, in it to the
replica with the fewest calls. If none has one, or the result is empty, the call waits: the router
is called again when anything changes, and after a pause that grows up to `max_backoff_s`.

Limits (`max_ongoing_requests`, `max_queued_requests`), deadlines and resends are not the router's
business. `PowerOfTwoChoicesRequestRouter` is here to be subclassed; deployments without a custom
class use `routing.router` instead, which needs no event loop.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from syncline.records import dataclass
from syncline.serve.context import ReplicaID

if TYPE_CHECKING:
    from syncline.serve.wire.routes import DeploymentId

__all__ = [
    "FIFOMixin",
    "LocalityMixin",
    "MultiplexMixin",
    "PendingRequest",
    "PowerOfTwoChoicesRequestRouter",
    "ReplicaID",
    "RequestRouter",
    "RunningReplica",
]

MULTIPLEX_MATCHING_S = 1.0
"""Seconds that a request waits for a replica that has its model."""


@dataclass(frozen=True, kw_only=True)
class RequestMetadata:
    """Facts about a request besides its arguments."""

    request_id: str
    """Id in logs; clients may choose it."""
    internal_request_id: str
    """Id that is unique in this process."""
    call_method: str = "__call__"
    """Method of the deployment; empty for HTTP requests."""
    route: str = ""
    """Route prefix of the HTTP request, or path of the gRPC method."""
    app_name: str = ""
    multiplexed_model_id: str = ""
    session_id: str = ""
    is_streaming: bool = False
    """True if the caller expects a stream of items."""
    protocol: str = "UNDEFINED"
    """"HTTP", "GRPC", or "UNDEFINED" for handles."""

    @property
    def is_http_request(self) -> bool:
        """True for HTTP requests."""
        return self.protocol == "HTTP"

    @property
    def is_grpc_request(self) -> bool:
        """True for gRPC calls."""
        return self.protocol == "GRPC"


@dataclass
class RequestRoutingContext:
    """Notes of a router about one request, kept from one choice to the next."""

    multiplexed_start_matching_time: float | None = None
    tried_fewest_multiplexed_models: bool = False
    tried_first_multiplexed_models: bool = False
    tried_same_node: bool = False
    tried_same_az: bool = False
    should_backoff: bool = False
    """Accepted as in Ray, without effect."""


class PendingRequest:
    """A request that waits for a replica."""

    def __init__(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        metadata: RequestMetadata | None = None,
        *,
        created_at: float | None = None,
        routing_context: RequestRoutingContext | None = None,
        load: Callable[[], tuple[Sequence[object], Mapping[str, object]]] | None = None,
    ) -> None:
        """`load` returns the arguments when they are needed, instead of `args` and `kwargs`."""
        self._arguments = None if load is not None else (args or (), kwargs or {})
        self._load = load
        self.metadata = metadata or RequestMetadata(request_id="", internal_request_id="")
        self.created_at = time.time() if created_at is None else created_at
        """Seconds since the epoch."""
        self.routing_context = routing_context or RequestRoutingContext()

    @property
    def args(self) -> list[Any]:
        """Positional arguments of a handle's call, unpickled on first use; empty for others."""
        return list(self._loaded()[0])

    @property
    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments of a handle's call, unpickled on first use; empty for others."""
        return dict(self._loaded()[1])

    def _loaded(self) -> tuple[Sequence[object], Mapping[str, object]]:
        if self._arguments is None:
            assert self._load is not None
            self._arguments = self._load()
        return self._arguments


@dataclass(eq=False, kw_only=True)
class RunningReplica:
    """A replica that takes calls, as this process sees it."""

    replica_id: ReplicaID
    node_id: str
    max_ongoing_requests: int
    count: Callable[[], int] = lambda: 0
    """Return the calls of this process that the replica has."""
    availability_zone: str | None = None
    models: Callable[[], set[str]] = set
    """Return the models that calls of this process asked the replica for."""
    routing_stats: Mapping[str, Any] = field(default_factory=dict)
    """Last result of the replica's `record_routing_stats`; empty without it."""
    replica_metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def multiplexed_model_ids(self) -> set[str]:
        """Models that calls of this process asked the replica for."""
        return self.models()

    @property
    def ongoing_requests(self) -> int:
        """Number of calls of this process that the replica has."""
        return self.count()

    @property
    def is_full(self) -> bool:
        """True if this process alone uses all slots of the replica."""
        return self.count() >= self.max_ongoing_requests


class ReplicaQueueLengthCache:
    """Numbers of calls by replica, always exact for this process."""

    def __init__(self, replicas: Mapping[ReplicaID, RunningReplica]) -> None:
        self._replicas = replicas

    def get(self, replica_id: ReplicaID) -> int | None:
        """Return the calls that the replica has; None for an unknown replica."""
        replica = self._replicas.get(replica_id)
        return None if replica is None else replica.ongoing_requests


class RequestRouter:
    """Chooses replicas for the calls of one deployment in one process.

    All methods are called on one event loop, never at the same time; `choose_replicas` may be
    called again while an earlier call of it waits, unless the class has `FIFOMixin`. An exception
    of `choose_replicas` fails the call for which it was called.
    """

    max_num_routing_tasks_cap = 50
    """Most calls of `choose_replicas` at the same time."""

    def __init__(
        self,
        deployment_id: DeploymentId,
        *args: Any,
        initial_backoff_s: float = 0.025,
        backoff_multiplier: float = 2.0,
        max_backoff_s: float = 0.5,
        get_curr_time_s: Callable[[], float] = time.time,
        **kwargs: Any,
    ) -> None:
        """Pass all arguments on from a subclass; their names may grow."""
        self._deployment_id = deployment_id
        self.initial_backoff_s = initial_backoff_s
        self.backoff_multiplier = backoff_multiplier
        self.max_backoff_s = max_backoff_s
        self._get_curr_time_s = get_curr_time_s
        self._replicas: dict[ReplicaID, RunningReplica] = {}
        self._replica_id_set: set[ReplicaID] = set()
        self._replicas_list: list[RunningReplica] = []
        self._replica_queue_len_cache = ReplicaQueueLengthCache(self._replicas)

    def initialize_state(self, **kwargs: object) -> None:
        """Take `RequestRouterConfig.request_router_kwargs`; called once, after the constructor."""

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> Sequence[Sequence[RunningReplica]]:
        """Return groups of replicas for a request, the best group first; empty to let it wait."""
        raise NotImplementedError(f"{type(self).__name__} has no `choose_replicas`: define it")

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Take the replicas that run now; called before a choice if they have changed."""
        self._replicas.clear()
        self._replicas.update((replica.replica_id, replica) for replica in replicas)
        self._replica_id_set = set(self._replicas)
        self._replicas_list = list(replicas)

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        """Record that a request was sent to a replica. `result` is always None here."""

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Record that a request has ended, with a result or an error."""

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """Record that a replica died; `update_replicas` follows."""

    # -- for subclasses

    @property
    def curr_replicas(self) -> dict[ReplicaID, RunningReplica]:
        """The replicas that run now, by id."""
        return self._replicas

    @property
    def app_name(self) -> str:
        """Name of the application."""
        return self._deployment_id.app

    @property
    def replica_queue_len_cache(self) -> ReplicaQueueLengthCache:
        """Calls of this process by replica."""
        return self._replica_queue_len_cache

    def select_available_replicas(
        self, candidates: list[RunningReplica] | None = None
    ) -> list[RunningReplica]:
        """Return those of `candidates` (default: all) that have a free slot."""
        chosen = self._replicas_list if candidates is None else candidates
        return [replica for replica in chosen if not replica.is_full]


class FIFOMixin:
    """Requests are sent in the order of their arrival.

    A request for which the router chose nothing holds the later ones up. Without this mixin, later
    requests are tried as well.
    """


class LocalityMixin:
    """Helpers to prefer replicas of the same node."""

    _replica_id_set: set[ReplicaID]
    _replicas_list: list[RunningReplica]

    def __init__(
        self,
        *args: Any,
        self_node_id: str | None = None,
        prefer_local_node_routing: bool = False,
        prefer_local_az_routing: bool = False,
        self_availability_zone: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._self_node_id = self_node_id
        self._prefer_local_node_routing = prefer_local_node_routing
        self._prefer_local_az_routing = prefer_local_az_routing
        self._self_availability_zone = self_availability_zone

    def apply_locality_routing(
        self, pending_request: PendingRequest | None = None
    ) -> set[ReplicaID]:
        """Return candidates: once those of this node, once those of this zone, then all."""
        if pending_request is None:
            return self._replica_id_set
        context = pending_request.routing_context
        ranks = self.rank_replicas_via_locality(self._replicas_list)
        if self._prefer_local_node_routing and ranks[0] and not context.tried_same_node:
            context.tried_same_node = True
            return {replica.replica_id for replica in ranks[0]}
        if self._prefer_local_az_routing and ranks[1] and not context.tried_same_az:
            context.tried_same_az = True
            return {replica.replica_id for replica in ranks[1]}
        return self._replica_id_set

    def rank_replicas_via_locality(
        self, replicas: list[RunningReplica]
    ) -> list[list[RunningReplica]]:
        """Return three groups: replicas of this node, of this zone, and the others."""
        node, zone = self._self_node_id, self._self_availability_zone
        ranks: list[list[RunningReplica]] = [[], [], []]
        for replica in replicas:
            if node is not None and replica.node_id == node:
                ranks[0].append(replica)
            elif zone is not None and replica.availability_zone == zone:
                ranks[1].append(replica)
            else:
                ranks[2].append(replica)
        return ranks


class MultiplexMixin:
    """Helpers to prefer replicas that have the model of a request."""

    _replica_id_set: set[ReplicaID]
    _replicas: dict[ReplicaID, RunningReplica]
    _get_curr_time_s: Callable[[], float]

    def apply_multiplex_routing(
        self, pending_request: PendingRequest | None = None
    ) -> set[ReplicaID]:
        """Return candidates for the model of a request.

        For a second: the replicas that have it; if none has it, or those were full, the replicas
        with the fewest models. Then once those with the fewest models, then all.
        """
        if pending_request is None:
            return self._replica_id_set
        context = pending_request.routing_context
        now = self._get_curr_time_s()
        if context.multiplexed_start_matching_time is None:
            context.multiplexed_start_matching_time = now
        if now - context.multiplexed_start_matching_time < MULTIPLEX_MATCHING_S:
            having = self._having(pending_request.metadata.multiplexed_model_id)
            if having and not context.tried_first_multiplexed_models:
                context.tried_first_multiplexed_models = True
                return having
            context.tried_first_multiplexed_models = True
            return self._with_fewest_models()
        if not context.tried_fewest_multiplexed_models:
            context.tried_fewest_multiplexed_models = True
            return self._with_fewest_models()
        return self._replica_id_set

    def rank_replicas_via_multiplex(
        self, replicas: list[RunningReplica], multiplexed_model_id: str
    ) -> list[list[RunningReplica]]:
        """Return three groups: replicas with the model, with the fewest models, and the others."""
        having, fewest = self._having(multiplexed_model_id), self._with_fewest_models()
        ranks: list[list[RunningReplica]] = [[], [], []]
        for replica in replicas:
            id = replica.replica_id
            ranks[0 if id in having else 1 if id in fewest else 2].append(replica)
        return ranks

    def _having(self, model_id: str) -> set[ReplicaID]:
        return {id for id, each in self._replicas.items() if model_id in each.multiplexed_model_ids}

    def _with_fewest_models(self) -> set[ReplicaID]:
        counts = {id: len(each.multiplexed_model_ids) for id, each in self._replicas.items()}
        fewest = min(counts.values(), default=math.inf)
        return {id for id, count in counts.items() if count == fewest}


class PowerOfTwoChoicesRequestRouter(FIFOMixin, LocalityMixin, MultiplexMixin, RequestRouter):
    """Chooses the replica with fewer calls of two random ones.

    M. Mitzenmacher, "The power of two choices in randomized load balancing", 2001.
    """

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Return two random replicas with a free slot; others as the second choice."""
        if pending_request is not None and pending_request.metadata.multiplexed_model_id:
            ids = self.apply_multiplex_routing(pending_request)
        else:
            ids = self.apply_locality_routing(pending_request)
        preferred = [replica for replica in candidate_replicas if replica.replica_id in ids]
        available = self.select_available_replicas(preferred)
        if len(available) <= 2:
            return [available] if available else []
        return [random.sample(available, 2)]
