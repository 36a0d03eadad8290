"""Assignment of ranks and GPUs to started workers. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncline.train.backend import Worker


@dataclass(frozen=True, kw_only=True)
class WorkerInfo:
    """Location of a started worker."""

    node_id: str
    node_ip: str
    hostname: str
    pid: int
    gpu_ids: list[str]


def rank_order(infos: Sequence[WorkerInfo]) -> list[int]:
    """Return positions in `infos` (creation order) by rank.

    Nodes are in the order in which their first worker was created. On a node, workers are ordered
    by their lowest GPU id; workers without GPUs stay in creation order.
    """
    nodes: dict[str, list[int]] = {}
    for position, info in enumerate(infos):
        nodes.setdefault(info.node_id, []).append(position)
    order: list[int] = []
    for positions in nodes.values():
        order += sorted(
            positions,
            key=lambda position: min(map(_gpu_order, infos[position].gpu_ids), default=(0, -1, "")),
        )
    return order


def assign_ranks(infos: Sequence[WorkerInfo]) -> list[Worker]:
    """Return the workers by rank; `infos` is in the order of `rank_order`."""
    node_ranks: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for info in infos:
        node_ranks.setdefault(info.node_id, len(node_ranks))
        sizes[info.node_id] = sizes.get(info.node_id, 0) + 1
    placed: dict[str, int] = dict.fromkeys(node_ranks, 0)
    workers: list[Worker] = []
    for rank, info in enumerate(infos):
        workers.append(
            Worker(
                **vars(info),
                rank=rank,
                local_rank=placed[info.node_id],
                local_world_size=sizes[info.node_id],
                node_rank=node_ranks[info.node_id],
            )
        )
        placed[info.node_id] += 1
    return workers


def visible_gpus(workers: Sequence[Worker], node_id: str) -> list[str]:
    """Return the distinct GPUs of all workers on a node, in the order of `CUDA_VISIBLE_DEVICES`."""
    return sorted(
        {gpu_id for worker in workers if worker.node_id == node_id for gpu_id in worker.gpu_ids},
        key=_gpu_order,
    )


def _gpu_order(gpu_id: str) -> tuple[int, int, str]:
    """Sort key: numbers by value, then UUIDs by name."""
    return (0, int(gpu_id), "") if gpu_id.isdigit() else (1, 0, gpu_id)
