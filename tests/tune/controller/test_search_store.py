"""`SearchStore`: everything written before a kill is read once, wherever the kill came."""

from __future__ import annotations

import json
import os
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyarrow.fs import FileSystem
from remote_filesystems import in_memory

from syncline import faults
from syncline.train.storage.context import ArrowFiles
from syncline.tune.controller import events, search_store
from syncline.tune.controller.search_store import SearchStore
from syncline.tune.execution.placement_groups import PlacementGroupFactory


@pytest.fixture(params=["local", "elsewhere"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> ArrowFiles:
    if request.param == "local":
        return ArrowFiles(FileSystem.from_uri(tmp_path.as_uri())[0], str(tmp_path))
    return ArrowFiles(in_memory(), "bucket/search")


def result(number: int) -> events.TrialStepped:
    return events.TrialStepped(
        trial_id="t_0", attempt=1, result={"step": number}, checkpoint=None, ended=False
    )


def read(files: ArrowFiles) -> tuple[bytes, list[Any]]:
    state, happened = SearchStore(files).load()
    return state, list(happened)


def names(files: ArrowFiles) -> set[str]:
    if files.local_path is not None:
        return set(os.listdir(files.local_path))
    return {Path(path).name for path in fsspec.filesystem("memory").store}


def test_there_is_no_search_before_the_first_snapshot(files: ArrowFiles) -> None:
    store = SearchStore(files)
    assert not store.exists()
    with pytest.raises(FileNotFoundError, match="holds no search"):
        store.load()
    store.snapshot(b"state")
    assert SearchStore(files).exists()
    assert read(files) == (b"state", [])


def test_events_come_back_in_their_order_after_the_latest_snapshot(files: ArrowFiles) -> None:
    store = SearchStore(files)
    store.snapshot(b"first")
    for number in range(5):
        store.append(result(number))
    store.flush()
    assert read(files) == (b"first", [result(number) for number in range(5)])
    store.snapshot(b"second")
    store.append(result(5))
    store.close()
    assert read(files) == (b"second", [result(5)])
    assert len([name for name in names(files) if name.startswith(("search-", "journal-"))]) == 2, (
        "what is over is deleted"
    )


def test_values_of_classes_from_the_main_program_are_restored(files: ArrowFiles) -> None:
    class Own:
        def __eq__(self, other: object) -> bool:
            return type(other).__name__ == "Own"

        def __hash__(self) -> int:
            return 0

    store = SearchStore(files)
    store.snapshot(b"")
    suggested = events.TrialSuggested(
        trial_id="t_0",
        config={"f": lambda x: x + 1},
        evaluated_params={},
        tag="",
        factory=PlacementGroupFactory([{"CPU": 1}]),
        name=None,
        directory="t_0",
    )
    store.append(suggested)
    store.append(
        events.TrialStepped(
            trial_id="t_0", attempt=1, result={"own": Own()}, checkpoint=None, ended=False
        )
    )
    store.close()
    _, (first, second) = read(files)
    assert first.config["f"](1) == 2
    assert second.result == {"own": Own()}


@pytest.mark.parametrize(
    ("point", "state", "kept"),
    [("tune.before_pointer", b"first", 3), ("tune.after_pointer", b"second", 0)],
)
def test_a_kill_while_a_snapshot_is_taken(
    point: str, state: bytes, kept: int, files: ArrowFiles
) -> None:
    store = SearchStore(files)
    store.snapshot(b"first")
    for number in range(3):
        store.append(result(number))
    store.flush()
    faults.configure(f"{point}=raise")
    try:
        with pytest.raises(faults.FaultInjected):
            store.snapshot(b"second")
    finally:
        faults.configure("")
    for _ in range(2):  # the next start is killed there, too
        store = SearchStore(files)
        found, happened = store.load()
        assert (found, len(list(happened))) == (state, kept)
        faults.configure("tune.before_pointer=raise")
        try:
            with pytest.raises(faults.FaultInjected):
                store.snapshot(b"third")
        finally:
            faults.configure("")
    store = SearchStore(files)
    list(store.load()[1])
    store.snapshot(b"third")
    assert read(files) == (b"third", [])
    assert len([name for name in names(files) if name.startswith(("search-", "journal-"))]) == 1, (
        "nothing of the killed ones is left"
    )


def test_a_line_that_a_kill_has_cut_short_does_not_count(tmp_path: Path) -> None:
    files = ArrowFiles(FileSystem.from_uri(tmp_path.as_uri())[0], str(tmp_path))
    store = SearchStore(files)
    store.snapshot(b"state")
    for number in range(3):
        store.append(result(number))
    store.close()
    path = tmp_path / "journal-000001.jsonl"
    path.write_bytes(path.read_bytes()[:-7])
    assert read(files) == (b"state", [result(0), result(1)])


def test_elsewhere_lines_are_sent_in_pieces_after_some_seconds_or_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(search_store, "SEND_BYTES", 2000)
    files = ArrowFiles(in_memory(), "bucket/search")
    store = SearchStore(files, clock=lambda: now[0])
    store.snapshot(b"state")
    store.append(result(0))
    assert read(files) == (b"state", []), "a kill loses it"
    now[0] += search_store.SEND_EVERY_S
    store.append(result(1))
    assert read(files) == (b"state", [result(0), result(1)])
    sent = len(names(files))
    for number in range(2, 30):
        store.append(result(number))
    assert sent < len(names(files)) < sent + 28, "several events travel together"
    store.close()
    assert read(files)[1] == [result(number) for number in range(30)]


def test_a_snapshot_is_wanted_when_the_journal_has_become_as_long_as_what_was_before(
    tmp_path: Path,
) -> None:
    files = ArrowFiles(FileSystem.from_uri(tmp_path.as_uri())[0], str(tmp_path))
    store = SearchStore(files)
    store.snapshot(b"")
    taken = []
    for number in range(10_000):
        store.append(result(number))
        if store.wants_snapshot:
            taken.append(number + 1)
            store.snapshot(b"")
    assert taken[0] == 1000
    assert [round(later / earlier, 1) for earlier, later in pairwise(taken)] == [2.0, 2.0, 2.0]
    store.close()
    again = SearchStore(files)
    assert len(list(again.load()[1])) == 10_000 - taken[-1]
    assert not again.wants_snapshot
    assert json.loads((tmp_path / "search.json").read_text())["events"] == taken[-1]


def test_an_event_that_does_not_fit_on_the_disk_leaves_the_journal_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ArrowFiles(FileSystem.from_uri(tmp_path.as_uri())[0], str(tmp_path))
    store = SearchStore(files)
    store.snapshot(b"state")
    store.append(result(0))
    write, room = os.write, [5]

    def full(descriptor: int, data: bytes) -> int:
        if not room:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[: room.pop()])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            store.append(result(1))
    store.append(result(2))
    store.close()
    assert read(files)[1] == [result(0), result(2)]
    assert pickle.loads(pickle.dumps(result(2))) == result(2)
