"""Builds the actors of replicas and proxies from instructions: options, placement groups. Pure."""

from __future__ import annotations

from typing import Any

from syncline.core.placement import NodeAffinitySchedulingStrategy
from syncline.core.resources import IMPLICIT_PREFIX
from syncline.records import dataclass
from syncline.serve.config import DeploymentConfig
from syncline.serve.context import GangContext
from syncline.serve.controller.actors import ActorStart, GroupStart
from syncline.serve.controller.events import StartProxy, StartReplica
from syncline.serve.controller.rollout import bundles_of
from syncline.serve.logging_config import TracingConfig
from syncline.serve.proxy.actor import ServeProxy
from syncline.serve.proxy.proxy_config import ProxyConfig
from syncline.serve.replica.actor import ServeReplica
from syncline.serve.replica.replica_config import ReplicaConfig
from syncline.serve.wire.routes import Address, DeploymentId

REPLICA = "SERVE_REPLICA::"
PROXY = "SERVE_PROXY::"


@dataclass(frozen=True, kw_only=True)
class Session:
    """Settings shared by all processes of serve."""

    directory: str
    """Directory of the sockets."""
    key: bytes
    controller: Address
    is_cluster: bool


def replica_start(
    step: StartReplica, session: Session, tracing_config: TracingConfig | None
) -> ActorStart:
    """Return the actor of a replica."""
    target = step.target
    config = target.config
    router = config.request_router_config
    number = step.replica_id.rpartition("#")[2]
    bundles = len(config.placement_group_bundles or (None,))
    return ActorStart(
        name=REPLICA + step.replica_id,
        cls=ServeReplica,
        options=_replica_options(step.deployment, config, session.is_cluster),
        group=_group(step),
        bundle=0 if step.gang is None else step.gang.rank * bundles,
        config=ReplicaConfig(
            replica_id=step.replica_id,
            deployment=step.deployment,
            socket_path=f"{session.directory}/replica-{number}.sock",
            ledger_path=f"{session.directory}/replica-{number}.ledger",
            key=session.key,
            controller=session.controller,
            func_or_class=target.func_or_class,
            init_args=target.init_args,
            user_config=config.user_config,
            max_ongoing_requests=config.max_ongoing_requests,
            graceful_shutdown_timeout_s=config.graceful_shutdown_timeout_s,
            health_check_timeout_s=config.health_check_timeout_s,
            logging_config=config.logging_config,
            tracing_config=tracing_config,
            routing_stats_period_s=router.request_routing_stats_period_s,
            routing_stats_timeout_s=router.request_routing_stats_timeout_s,
            route_prefix=step.route_prefix,
            rank=step.rank,
            world_size=step.world_size,
            code_version=target.code_version,
            gang=step.gang,
        ),
    )


def proxy_start(step: StartProxy, session: Session, fd_path: str | None) -> ActorStart:
    """Return the actor of a proxy; it gets its listening sockets at `fd_path`, if any."""
    options: dict[str, object] = {"num_cpus": 0}
    if session.is_cluster:
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(step.node_id, False)
    return ActorStart(
        name=PROXY + step.proxy_id,
        cls=ServeProxy,
        options=options,
        config=ProxyConfig(
            proxy_id=step.proxy_id,
            http=step.options.http,
            grpc=step.options.grpc,
            tracing_config=step.options.tracing_config,
            logging_config=step.options.logging_config,
            key=session.key,
            controller=session.controller,
            fd_path=fd_path,
        ),
    )


def group_name(replica_id: str, config: DeploymentConfig, gang: GangContext | None) -> str | None:
    """Return the name of the placement group of a replica; None if it has none."""
    if gang is not None:
        return gang.pg_name or None
    return REPLICA + replica_id if config.placement_group_bundles else None


def _group(step: StartReplica) -> GroupStart | None:
    config = step.target.config
    name = group_name(step.replica_id, config, step.gang)
    if name is None:
        return None
    gangs = config.gang_scheduling_config
    strategy = config.placement_group_strategy or "PACK"
    return GroupStart(
        name=name,
        bundles=tuple(bundles_of(config)),
        strategy=strategy if gangs is None else gangs.gang_placement_strategy.value,
        label_selectors=tuple(config.bundle_labels * config.gang_size),
    )


def _replica_options(
    id: DeploymentId, config: DeploymentConfig, is_cluster: bool
) -> dict[str, Any]:
    options = {"num_cpus": 1, **config.ray_actor_options}
    if not is_cluster or bundles_of(config):
        return options
    options.setdefault("scheduling_strategy", "SPREAD")
    if config.max_replicas_per_node is not None:
        share = {f"{IMPLICIT_PREFIX}{id}": 1 / config.max_replicas_per_node}
        options["resources"] = {**(options.get("resources") or {}), **share}
    return options
