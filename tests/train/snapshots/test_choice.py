"""Choice of a snapshot among the files of all nodes, and of the nodes for copies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncline.train.backend import Worker
from syncline.train.snapshots import directory as directories
from syncline.train.snapshots.choice import (
    Choice,
    Found,
    FoundSnapshot,
    choose,
    copy_nodes,
    sources,
)
from syncline.train.snapshots.config import SnapshotSource
from syncline.train.snapshots.slot import SnapshotHeader

VERSIONS = {"syncline": "1", "training function": "abc"}


def header(step: int, *, rank: int = 0, report: int = 5, **changes: object) -> SnapshotHeader:
    values: dict[str, object] = {
        "rank": rank,
        "world_size": 2,
        "step": step,
        "next_report": report,
        "taken_at": float(step),
        "versions": VERSIONS,
        **changes,
    }
    return SnapshotHeader(**values)


def own(rank: int, *headers: SnapshotHeader) -> list[FoundSnapshot]:
    """The files of a rank on its node."""
    return [
        FoundSnapshot(header=replace(each, rank=rank), file_name=f"rank-{rank:05d}.{number}")
        for number, each in enumerate(headers)
    ]


def copies(rank: int, *headers: SnapshotHeader) -> list[FoundSnapshot]:
    """The files of a rank on another node."""
    return [
        FoundSnapshot(
            header=replace(each, rank=rank),
            file_name=directories.copy_name(rank, each.attempt, each.step),
        )
        for each in headers
    ]


def chosen_of(found: Found, after_report: int = -1) -> Choice:
    return choose(found, world_size=2, versions=VERSIONS, after_report=after_report)


def chosen(*ranks: list[SnapshotHeader], after_report: int = -1) -> Choice:
    found = [each for rank, headers in enumerate(ranks) for each in own(rank, *headers)]
    return chosen_of({"a": found}, after_report)


def test_the_newest_step_of_all_ranks_is_chosen() -> None:
    found = chosen([header(7), header(8)], [header(7, report=6), header(6)])
    assert found == Choice(step=7, next_report=6, taken_at=7.0)


def test_without_snapshots_nothing_is_said() -> None:
    assert chosen() == Choice()


def test_a_newer_checkpoint_is_preferred_silently() -> None:
    both = [header(7)], [header(7)]
    assert chosen(*both, after_report=4).step == 7
    assert chosen(*both, after_report=5) == Choice()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"world_size": 4}, "by 4 ranks, and this attempt has 2"),
        (
            {"versions": {**VERSIONS, "syncline": "0"}},
            "with syncline 0, and this run has syncline 1",
        ),
        (
            {"versions": {**VERSIONS, "training function": "f00"}},
            "with training function f00, and this run has training function abc",
        ),
        ({"format": 99}, "in format 99, and this syncline reads 2"),
    ],
)
def test_other_snapshots_are_refused_with_both_versions(
    changes: dict[str, object], text: str
) -> None:
    found = chosen([header(7, **changes)], [header(7, **changes)])
    assert found.step is None
    assert text in found.refusal
    assert "step 7" in found.refusal


def test_without_a_common_step_the_steps_are_named() -> None:
    assert "rank 0: 8 and 9, rank 1: 3" in chosen([header(9), header(8)], [header(3)]).refusal
    assert "rank 1: none" in chosen([header(9)]).refusal
    assert chosen([header(9)]).is_incomplete


def test_steps_of_different_attempts_do_not_belong_together() -> None:
    old, new = header(9, attempt=1), header(9, attempt=2)
    assert chosen([old], [new]).is_incomplete
    found = chosen([header(8, attempt=2), old], [header(8, attempt=2), old])
    assert (found.attempt, found.step) == (2, 8), "the later attempt has not reached step 9 yet"


def test_copies_count_for_a_rank_whose_node_is_gone() -> None:
    found = {"b": [*own(1, header(12), header(13), header(8)), *copies(0, header(6), header(8))]}
    choice = chosen_of(found)
    assert choice.step == 8, "both ranks have it, and 12 and 13 were not copied"
    workers = [worker(0, "b"), worker(1, "b")]
    assert sources(choice, found, workers) == {
        0: SnapshotSource(node_id="b", file_name="copy-00000.0.8")
    }


def test_a_file_of_the_rank_on_its_node_needs_no_transfer() -> None:
    found = {
        "a": [*own(0, header(8)), *copies(1, header(8))],
        "b": [*own(1, header(8)), *copies(0, header(8))],
    }
    assert sources(chosen_of(found), found, [worker(0, "a"), worker(1, "b")]) == {}
    # The ranks have changed their nodes: the copies are there already.
    assert sources(chosen_of(found), found, [worker(0, "b"), worker(1, "a")]) == {
        0: SnapshotSource(node_id="b", file_name="copy-00000.0.8"),
        1: SnapshotSource(node_id="a", file_name="copy-00001.0.8"),
    }
    # A new node has nothing.
    assert sources(chosen_of(found), found, [worker(0, "a"), worker(1, "c")]) == {
        1: SnapshotSource(node_id="a", file_name="copy-00001.0.8")
    }


def test_without_a_choice_there_is_nothing_to_fetch() -> None:
    assert sources(Choice(), {}, [worker(0, "a")]) == {}


def worker(rank: int, node: str) -> Worker:
    return Worker(
        rank=rank,
        local_rank=0,
        local_world_size=1,
        node_rank=0,
        node_id=node,
        node_ip="127.0.0.1",
        hostname=node,
        pid=1,
        gpu_ids=[],
    )


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("aa", {}),
        ("ab", {0: "b", 1: "a"}),
        ("aabbc", {0: "b", 1: "b", 2: "c", 3: "c", 4: "a"}),
        ("abab", {0: "b", 1: "a", 2: "b", 3: "a"}),
    ],
)
def test_copies_go_to_the_next_node(nodes: str, expected: dict[int, str]) -> None:
    assert copy_nodes([worker(rank, node) for rank, node in enumerate(nodes)]) == expected
