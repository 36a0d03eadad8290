"""Ranks: who gets which."""

from __future__ import annotations

from syncline.train.workers.ranks import WorkerInfo, assign_ranks, rank_order, visible_gpus


def facts(node: str, *gpus: str) -> WorkerInfo:
    return WorkerInfo(node_id=node, node_ip=f"ip-{node}", hostname=node, pid=1, gpu_ids=list(gpus))


def test_workers_are_grouped_by_node_in_the_order_of_their_creation() -> None:
    started = [facts("b"), facts("a"), facts("b"), facts("a")]
    order = rank_order(started)
    assert order == [0, 2, 1, 3]
    workers = assign_ranks([started[position] for position in order])
    assert [
        (w.rank, w.node_id, w.node_rank, w.local_rank, w.local_world_size) for w in workers
    ] == [(0, "b", 0, 0, 2), (1, "b", 0, 1, 2), (2, "a", 1, 0, 2), (3, "a", 1, 1, 2)]


def test_on_a_node_the_lowest_gpu_comes_first_by_number() -> None:
    assert rank_order([facts("a", "10"), facts("a", "9", "11"), facts("a", "2")]) == [2, 1, 0]


def test_gpus_without_numbers_come_by_name() -> None:
    assert rank_order([facts("a", "GPU-ff"), facts("a", "GPU-aa")]) == [1, 0]


def test_every_worker_sees_the_gpus_of_all_on_its_node() -> None:
    workers = assign_ranks([facts("a", "10"), facts("a", "2", "3"), facts("b", "0")])
    assert visible_gpus(workers, "a") == ["2", "3", "10"]
    assert visible_gpus(workers, "b") == ["0"]


def test_a_gpu_that_two_workers_share_is_seen_once() -> None:
    assert visible_gpus(assign_ranks([facts("a", "0"), facts("a", "0")]), "a") == ["0"]
