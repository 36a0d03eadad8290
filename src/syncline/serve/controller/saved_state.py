"""Conversion of the machine's state to plain data that survives the controller, and back. Pure.

Loads, health counts and pauses between attempts are not saved; they are built up again.
"""

from __future__ import annotations

from collections.abc import Mapping

from syncline.core.message import Message
from syncline.core.state_machine import Lifecycle
from syncline.serve.config import DeploymentActorConfig
from syncline.serve.context import GangContext
from syncline.serve.controller.application_state import ApplicationState
from syncline.serve.controller.deployment_actor_state import (
    SLOW_START_S,
    ActorState,
    DeploymentActor,
)
from syncline.serve.controller.deployment_state import DeploymentState
from syncline.serve.controller.events import KillDeploymentActor
from syncline.serve.controller.messages import ApplicationTarget, DeploymentTarget, StartProxies
from syncline.serve.controller.proxy_state import Proxy, ProxyFleet, ProxyStateName
from syncline.serve.controller.replica_set import (
    ACKNOWLEDGE_S,
    INSPECT_WAIT_S,
    KILL_MARGIN_S,
    RECOVER_S,
)
from syncline.serve.controller.replica_state import (
    TRANSITIONS,
    Gang,
    Replica,
    ReplicaState,
    Version,
)
from syncline.serve.controller.step import Step
from syncline.serve.wire.routes import DeploymentId, ReplicaRoute

VersionKey = tuple[int, int]
"""Number and config number of a version."""


class SavedVersion(Message):
    """A version of a deployment."""

    number: int
    config_number: int
    target: DeploymentTarget
    failures: int
    error: str
    has_failed: bool
    was_complete: bool


class SavedReplica(Message):
    """A replica whose process may exist."""

    id: str
    version: VersionKey
    rank: int
    world_size: int
    state: str
    is_placed: bool
    route: ReplicaRoute | None
    pid: int | None
    node_id: str | None
    constructor_s: float | None
    retired: str
    ending: str
    drains: bool
    gang: GangContext | None


class SavedActor(Message):
    """A deployment actor."""

    id: str
    code_version: str
    config: DeploymentActorConfig
    runtime_env: object
    state: str


class SavedDeployment(Message):
    """A deployment."""

    name: str
    versions: tuple[SavedVersion, ...]
    version: VersionKey
    previous: VersionKey | None
    route_prefix: str | None
    is_deploying: bool
    is_deleted: bool
    is_asgi: bool
    docs_path: str | None
    patterns: tuple[str, ...]
    wanted: int
    replicas: tuple[SavedReplica, ...]
    actors: tuple[SavedActor, ...]


class SavedApplication(Message):
    """An application."""

    target: ApplicationTarget
    version: int
    deployed_s: float
    is_deleting: bool
    published: tuple[str | None, DeploymentId] | None
    deployments: tuple[SavedDeployment, ...]


class SavedProxy(Message):
    """A proxy whose process may exist."""

    id: str
    node_id: str
    state: ProxyStateName
    pid: int | None
    http_address: tuple[str, int] | None
    grpc_address: tuple[str, int] | None
    was_ready: bool


class SavedState(Message):
    """Everything that a restarted controller needs to continue."""

    table_version: int
    applications: tuple[SavedApplication, ...]
    proxy_options: StartProxies | None
    proxies: tuple[SavedProxy, ...]
    subscribers: tuple[str, ...]
    """Processes that know the routing table."""
    is_shutting_down: bool


def save_application(application: ApplicationState) -> SavedApplication:
    """Return the data of an application."""
    return SavedApplication(
        target=application.target,
        version=application.version,
        deployed_s=application.deployed_s,
        is_deleting=application.is_deleting,
        published=application.published,
        deployments=tuple(_save(each) for each in application.deployments.values()),
    )


def _save(deployment: DeploymentState) -> SavedDeployment:
    versions = {_key(deployment.version): deployment.version}
    for version in (deployment.previous, *(r.version for r in deployment.replicas.values())):
        if version is not None:
            versions[_key(version)] = version
    previous = deployment.previous
    return SavedDeployment(
        name=deployment.id.name,
        versions=tuple(
            SavedVersion(
                number=each.number,
                config_number=each.config_number,
                target=each.target,
                failures=each.failures,
                error=each.error,
                has_failed=each.has_failed,
                was_complete=each.was_complete,
            )
            for each in versions.values()
        ),
        version=_key(deployment.version),
        previous=None if previous is None else _key(previous),
        route_prefix=deployment.route_prefix,
        is_deploying=deployment.is_deploying,
        is_deleted=deployment.is_deleted,
        is_asgi=deployment.is_asgi,
        docs_path=deployment.docs_path,
        patterns=deployment.patterns,
        wanted=deployment.scaling.wanted,
        replicas=tuple(_save_replica(each) for each in deployment.replicas.values()),
        actors=tuple(
            SavedActor(
                id=each.id,
                code_version=each.code_version,
                config=each.config,
                runtime_env=each.runtime_env,
                state=each.state.value,
            )
            for each in deployment.actors.by_id.values()
        ),
    )


def _save_replica(replica: Replica) -> SavedReplica:
    return SavedReplica(
        id=replica.id,
        version=_key(replica.version),
        rank=replica.rank,
        world_size=replica.world_size,
        state=replica.state.value,
        is_placed=replica.is_placed,
        route=replica.route,
        pid=replica.pid,
        node_id=replica.node_id,
        constructor_s=replica.constructor_s,
        retired=replica.retired,
        ending=replica.ending,
        drains=replica.drains,
        gang=None if replica.gang is None else replica.gang.context(replica.id),
    )


def _key(version: Version) -> VersionKey:
    return version.number, version.config_number


def restore_application(saved: SavedApplication, step: Step) -> ApplicationState:
    """Return the application; its replicas wait for their processes to connect."""
    application = ApplicationState(saved.target, step)
    application.version = saved.version
    application.deployed_s = saved.deployed_s
    application.published = saved.published
    application.is_deleting = saved.is_deleting
    for each in saved.deployments:
        id = DeploymentId(application.name, each.name)
        application.deployments[each.name] = _restore(id, each, step)
    application.follow_policy()
    return application


def _restore(id: DeploymentId, saved: SavedDeployment, step: Step) -> DeploymentState:
    versions = {
        (each.number, each.config_number): Version(
            number=each.number,
            config_number=each.config_number,
            target=each.target,
            failures=each.failures,
            error=each.error,
            has_failed=each.has_failed,
            was_complete=each.was_complete,
        )
        for each in saved.versions
    }
    version = versions[saved.version]
    deployment = DeploymentState(id, version.target, step, saved.route_prefix)
    deployment.version = version
    deployment.previous = None if saved.previous is None else versions[saved.previous]
    deployment.is_deploying = saved.is_deploying
    deployment.is_asgi, deployment.docs_path = saved.is_asgi, saved.docs_path
    deployment.patterns = saved.patterns
    if saved.is_deleted:
        deployment.delete()
    else:
        deployment.scaling.restore(saved.wanted)
    gangs: dict[str, Gang] = {}
    for each in saved.replicas:
        deployment.add(_restore_replica(each, versions, gangs, step))
    for saved_actor in saved.actors:
        actor = deployment.actors.by_id[saved_actor.id] = _restore_actor(saved_actor, step)
        if actor.state is ActorState.STOPPING:
            step.emit(KillDeploymentActor(actor_id=actor.id))
    return deployment


def _restore_actor(saved: SavedActor, step: Step) -> DeploymentActor:
    actor = DeploymentActor(
        id=saved.id,
        code_version=saved.code_version,
        config=saved.config,
        runtime_env=saved.runtime_env,
        ready_at=step.now,
    )
    actor.resume(ActorState(saved.state))
    if actor.state is ActorState.STARTING:
        step.after("actor_slow", actor.id, SLOW_START_S)
    return actor


def _restore_replica(
    saved: SavedReplica, versions: Mapping[VersionKey, Version], gangs: dict[str, Gang], step: Step
) -> Replica:
    gang = saved.gang
    replica = Replica(
        id=saved.id,
        version=versions[saved.version],
        rank=saved.rank,
        world_size=saved.world_size,
        created_at=step.now,
        gang=(
            None
            if gang is None
            else gangs.setdefault(
                gang.gang_id, Gang(gang.gang_id, gang.member_replica_ids, gang.pg_name)
            )
        ),
        is_restored=True,
    )
    replica.is_placed, replica.route = saved.is_placed, saved.route
    replica.pid, replica.node_id = saved.pid, saved.node_id
    replica.constructor_s = saved.constructor_s
    replica.retired, replica.ending = saved.retired, saved.ending
    state = ReplicaState(saved.state)
    if state is ReplicaState.STARTING:
        step.after("wait", replica.id, INSPECT_WAIT_S)
        return replica
    if state is ReplicaState.DRAINING:
        replica.drains = saved.drains
        timeout_s = replica.version.target.config.graceful_shutdown_timeout_s
        if saved.drains or saved.route is None:
            step.after("kill", replica.id, timeout_s + KILL_MARGIN_S)
        else:  # time for the subscribers to connect and to get the table without it
            step.after("acknowledge", replica.id, ACKNOWLEDGE_S)
    else:
        state = ReplicaState.RECOVERING
        replica.ready_at = step.now
        step.after("recover", replica.id, RECOVER_S)
    replica.lifecycle = Lifecycle(f"replica {replica.id}", TRANSITIONS, state)
    return replica


def save_proxies(fleet: ProxyFleet) -> tuple[SavedProxy, ...]:
    """Return the data of the proxies."""
    return tuple(
        SavedProxy(
            id=each.id,
            node_id=each.node_id,
            state=each.state,
            pid=each.pid,
            http_address=each.http_address,
            grpc_address=each.grpc_address,
            was_ready=each.was_ready,
        )
        for each in fleet.proxies.values()
    )


def restore_proxies(fleet: ProxyFleet, saved: SavedState) -> None:
    """Put the proxies back; their processes may have gone meanwhile."""
    fleet.options = saved.proxy_options
    for each in saved.proxies:
        fleet.proxies[each.id] = Proxy(
            id=each.id,
            node_id=each.node_id,
            state=each.state,
            pid=each.pid,
            http_address=each.http_address,
            grpc_address=each.grpc_address,
            was_ready=each.was_ready,
        )
