"""Snapshots of a run on several nodes, for its controller."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from syncline.core import api
from syncline.train.controller import run_snapshots
from syncline.train.controller.run_snapshots import RunSnapshots
from syncline.train.snapshots import directory as directories
from syncline.train.snapshots import node_files
from syncline.train.snapshots.config import SnapshotConfig, SnapshotSpec
from syncline.train.snapshots.rank_snapshots import RankSnapshots
from syncline.train.snapshots.slot import SnapshotId, SnapshotSlot

NODES = ["here", "there", "here", "there"]
"""Node of each rank."""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(directories, "root", lambda: tmp_path / "root")
    monkeypatch.setattr(directories, "start_reaper", lambda directory, keep_s: None)
    yield
    for path in list(directories._locks):
        os.close(directories._locks.pop(path))


class Group:
    """Workers on two nodes that have one file system."""

    def __init__(self) -> None:
        self.workers = [SimpleNamespace(rank=rank, node_id=node) for rank, node in enumerate(NODES)]
        self.calls: list[tuple[int, str, Any]] = []

    def __len__(self) -> int:
        return len(self.workers)

    def execute_single_async(self, rank: int, call: Callable[..., object], *args: Any) -> object:
        self.calls.append((rank, call.__name__, args[1:]))
        return call(*args)

    def gather(self, results: Sequence[object]) -> Sequence[object]:
        return results


def run(
    snapshot: SnapshotConfig | None = None,
    earlier_nodes: Sequence[str] = (),
    refused: SnapshotId | None = None,
) -> RunSnapshots:
    spec: Any = SimpleNamespace(
        train_function=run,
        run_config=SimpleNamespace(snapshot=snapshot),
        data_config=SimpleNamespace(resume=True),
    )
    return RunSnapshots(
        spec,
        run_path="/runs/a",
        started=1.0,
        node_id="here",
        earlier_nodes=earlier_nodes,
        refused=refused,
    )


def take(spec: SnapshotSpec, rank: int, *, steps: int) -> None:
    snapshots = RankSnapshots(spec, rank=rank, world_size=len(NODES), local_world_size=2, agree=int)
    for step in range(1, steps + 1):
        assert snapshots.advance(0.0)
        snapshots.take({"step": step}, b"", 0)


def test_the_newest_step_of_the_ranks_of_all_nodes_is_chosen() -> None:
    group: Any = Group()
    spec = run().choose(group, -1)
    for rank in range(len(NODES)):
        take(spec, rank, steps=3 if rank == 1 else 2)
    group.calls.clear()
    made = run()
    assert made.choose(group, -1).resume_step == made.chosen.step == 2
    assert group.calls == [(1, "list_on_node", ())]
    group.calls.clear()
    made.remove(group)
    assert group.calls == [(1, "remove_on_node", ())]
    assert not Path(spec.directory).exists()


def test_states_of_saved_checkpoints_are_no_snapshots() -> None:
    group: Any = Group()
    made = run()
    spec = made.choose(group, -1)
    assert not made.exist
    snapshots = RankSnapshots(spec, rank=0, world_size=len(NODES), local_world_size=2, agree=int)
    assert snapshots.copy_to(SnapshotSlot(Path(spec.directory, "rank-00000.save1")), {"a": 1})
    assert not made.exist
    take(spec, 0, steps=1)
    assert made.exist


@pytest.mark.parametrize(("config", "expected"), [(SnapshotConfig(), True), (None, False)])
def test_ranks_of_other_nodes_may_have_taken_snapshots(
    config: SnapshotConfig | None, expected: bool
) -> None:
    group: Any = Group()
    made = run(config)
    assert not made.may_exist_elsewhere
    made.choose(group, -1)
    assert (made.exist, made.may_exist_elsewhere) == (False, expected)


def test_snapshots_of_the_other_kind_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    group: Any = Group()
    spec = run(SnapshotConfig(automatic=False)).choose(group, -1)
    for rank in range(len(NODES)):
        take(spec, rank, steps=2)
    assert run().choose(group, -1).resume_step == 2, "both are taken by calls"
    assert run(SnapshotConfig()).choose(group, -1).resume_step is None
    assert "with automatic snapshots off, and this run has automatic snapshots on" in caplog.text


def test_ranks_on_other_nodes_find_the_snapshots_of_an_earlier_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group: Any = Group()
    spec = run().choose(group, -1)
    for rank in range(len(NODES)):
        take(spec, rank, steps=2)
    before = directories.list_snapshots(Path(spec.directory))
    directories.remove(Path(spec.directory))
    asked: list[str] = []

    def run_on_node(node: str, function: object, *arguments: object) -> Any:
        asked.append(node)
        return node

    monkeypatch.setattr(node_files, "run_on_node", run_on_node)
    monkeypatch.setattr(api, "wait", lambda refs, num_returns, timeout: (refs, []))
    monkeypatch.setattr(api, "get", lambda ref: before)
    monkeypatch.setattr(run_snapshots, "living_nodes", lambda: {"before", *NODES})
    made = run(earlier_nodes=("before", "dead"))
    assert made.choose(group, -1).resume_step == 2
    assert asked == ["before"]


def test_snapshots_and_copies_that_were_refused_are_not_used_again() -> None:
    group: Any = Group()
    made = run()
    spec = made.choose(group, -1)
    for rank in range(len(NODES)):
        take(spec, rank, steps=2)
        own, _ = directories.slots_of(Path(spec.directory), rank)
        header = own.header()
        assert header is not None
        own.path.rename(
            own.path.with_name(directories.copy_name(rank, header.attempt, header.step))
        )
    second = made.choose(group, -1)
    assert second.resume_step == 2
    refused: list[SnapshotId] = []
    RankSnapshots(
        second, rank=1, world_size=4, local_world_size=2, agree=int, on_refused=refused.append
    ).refuse()
    assert refused == [SnapshotId(attempt=second.attempt, step=2)]
    assert run().choose(group, -1).resume_step == 1, "from the copies"
    made.refuse(refused[0])
    later = run(refused=refused[0]).choose(group, -1)
    for each in (later, made.choose(group, -1)):
        assert each.resume_step is None
    for rank in range(len(NODES)):
        take(later, rank, steps=1)
    assert made.choose(group, -1).resume_step == 1, "a snapshot of a later attempt"
