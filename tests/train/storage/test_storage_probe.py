"""Nodes that do not see the run directory are found and named."""

from __future__ import annotations

from pathlib import Path

from syncline.train.backend import Worker
from syncline.train.storage.context import StorageContext
from syncline.train.storage.probe import StorageProbe, probe_error, ranks_to_probe


def worker(rank: int, node: str) -> Worker:
    return Worker(
        rank=rank,
        node_id=node,
        node_ip=f"10.0.0.{rank}",
        hostname=f"host-{node}",
        pid=rank,
        local_rank=0,
        local_world_size=1,
        node_rank=0,
        gpu_ids=[],
    )


def test_a_written_file_is_seen_until_it_is_removed(tmp_path: Path) -> None:
    probe = StorageProbe(storage=StorageContext(tmp_path, "run"))
    assert probe.problem() == "the file does not exist"
    probe.write()
    assert probe.problem() is None
    Path(probe.path).write_text("of somebody else")
    assert probe.problem() == "another file exists"
    probe.remove()
    assert probe.problem() == "the file does not exist"


def test_one_worker_of_every_other_node_is_asked() -> None:
    workers = [worker(0, "own"), worker(1, "a"), worker(2, "a"), worker(3, "b")]
    assert ranks_to_probe(workers, "own") == [1, 3]
    assert ranks_to_probe(workers[:1], "own") == []


def test_the_error_names_only_nodes_that_do_not_see_the_storage(tmp_path: Path) -> None:
    storage = StorageContext(tmp_path, "run")
    workers = [worker(0, "a"), worker(1, "b")]
    assert probe_error(storage, {0: None, 1: None}, workers) is None
    text = probe_error(storage, {0: None, 1: "the file does not exist"}, workers)
    assert text is not None
    assert "host-b (10.0.0.1): the file does not exist" in text
    assert "host-a" not in text
    assert str(tmp_path) in text
