"""Who and where the running code is, in the driver and in Ray's workers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import ray

from syncline.core import engines, refs
from syncline.core.engine import ActorRecord, RuntimeFacts

_IN_GROUP = re.compile(r"_group_(\d+_)?[0-9a-f]{36}$")


class _Worker:
    """What a worker of Ray's knows of itself as a worker of syncline's."""

    def __init__(self) -> None:
        self.actor: ActorRecord | None = None


_worker = _Worker()


def enter() -> None:
    """Before user code runs in a worker: syncline runs in this process, on the cluster that the
    worker belongs to.
    """
    if refs._engine is None:
        refs.set_engine(engines.enter_cluster())


def become(record: ActorRecord) -> None:
    """This worker is an actor from now on."""
    _worker.actor = record


def is_worker() -> bool:
    """Whether this process runs tasks for a program, rather than being the program."""
    return bool(ray._private.worker.global_worker.mode == ray.WORKER_MODE)


def now(environment: Mapping[str, Any]) -> RuntimeFacts:
    """Facts of the calling thread."""
    context = ray.get_runtime_context()
    common = {
        "job_id": context.get_job_id(),
        "node_id": context.get_node_id(),
        "worker_id": context.get_worker_id(),
        "namespace": context.namespace,
    }
    if not is_worker():
        return RuntimeFacts(**common, runtime_env=environment)
    group = context.get_placement_group_id()
    actor = _worker.actor
    return RuntimeFacts(
        **common,
        task_id=context.get_task_id(),
        task_name=context.get_task_name(),
        actor_id=context.get_actor_id(),
        actor_name=context.get_actor_name() or None if actor is not None else None,
        actor=actor,
        was_restarted=actor is not None and _was_restarted(context.get_actor_id()),
        placement_group_id=None if group is None else int(group, 16),
        assigned_resources=plain_resources(context.get_assigned_resources()),
        gpu_ids=tuple(str(gpu) for gpu in context.get_accelerator_ids().get("GPU", ())),
        runtime_env=dict(context.runtime_env),
    )


def draining_nodes() -> dict[str, float | None]:
    """Nodes that the cluster is about to lose, as `Engine.draining_nodes` gives them; those that
    are gone are left out.
    """
    deadlines_ms = ray._private.state.state.get_draining_nodes()
    return {node_id: deadline_ms / 1000 or None for node_id, deadline_ms in deadlines_ms.items()}


@lru_cache(maxsize=1)
def _was_restarted(actor_id: str) -> bool:
    """Whether the actor of this process had another process before; Ray's own property asks anew
    each time, and prints a warning.
    """
    row = ray._private.state.actors(actor_id=actor_id)
    return bool(row and row["NumRestarts"])


def plain_resources(assigned: Mapping[str, float]) -> dict[str, float]:
    """Amounts by the names that programs use: inside a placement group, Ray calls its part of CPU
    `CPU_group_…`.
    """
    plain: dict[str, float] = {}
    for name, amount in assigned.items():
        base = _IN_GROUP.sub("", name)
        if base != "bundle":
            plain[base] = max(plain.get(base, 0), amount)
    return plain
