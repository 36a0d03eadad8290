"""Who gets which rank: pure functions from what started workers say of themselves to their
places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncline.train.backend import Worker


@dataclass(frozen=True, kw_only=True)
class WorkerFacts:
    """What a worker says of itself once it has started."""

    node_id: str
    node_ip: str
    hostname: str
    pid: int
    gpu_ids: tuple[str, ...]


def _gpu_order(gpu_id: str) -> tuple[int, int, str]:
    """Numbers by value, then UUIDs by name."""
    return (0, int(gpu_id), "") if gpu_id.isdigit() else (1, 0, gpu_id)


def rank_order(facts: Sequence[WorkerFacts]) -> list[int]:
    """Positions in `facts` (creation order) by rank.

    Nodes come in the order in which their first worker was created; on a node, the worker with the
    lowest GPU id comes first, and workers without GPUs stay in the order of their creation.
    """
    nodes: dict[str, list[int]] = {}
    for position, worker in enumerate(facts):
        nodes.setdefault(worker.node_id, []).append(position)
    order: list[int] = []
    for positions in nodes.values():
        order += sorted(
            positions,
            key=lambda position: min(map(_gpu_order, facts[position].gpu_ids), default=(0, -1, "")),
        )
    return order


def assign_ranks(facts: Sequence[WorkerFacts]) -> list[Worker]:
    """`facts` in the order of `rank_order`, each with its place: workers by rank."""
    nodes: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for worker in facts:
        nodes.setdefault(worker.node_id, len(nodes))
        sizes[worker.node_id] = sizes.get(worker.node_id, 0) + 1
    placed: dict[str, int] = dict.fromkeys(nodes, 0)
    workers: list[Worker] = []
    for rank, worker in enumerate(facts):
        workers.append(
            Worker(
                rank=rank,
                node_id=worker.node_id,
                node_ip=worker.node_ip,
                hostname=worker.hostname,
                pid=worker.pid,
                local_rank=placed[worker.node_id],
                local_world_size=sizes[worker.node_id],
                node_rank=nodes[worker.node_id],
                gpu_ids=list(worker.gpu_ids),
            )
        )
        placed[worker.node_id] += 1
    return workers


def visible_gpus(workers: Sequence[Worker], node_id: str) -> list[str]:
    """The GPUs of all workers on a node, each once, in the order of `CUDA_VISIBLE_DEVICES`."""
    return sorted(
        {gpu_id for worker in workers if worker.node_id == node_id for gpu_id in worker.gpu_ids},
        key=_gpu_order,
    )
