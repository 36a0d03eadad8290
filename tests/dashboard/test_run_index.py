"""The run index: reads, filter, order and paging, with artificial storage paths and summaries."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from syncline.dashboard.pages.run_list_page import shown_row
from syncline.dashboard.run_index import RunIndex
from syncline.dashboard.run_query import (
    FRESH_S,
    PAGE_ROWS,
    PATIENCE_S,
    SORTS,
    Query,
    metrics_text,
    progress_text,
)
from syncline.runs import LocalFiles, RunDirectory
from syncline.runs.annotations import annotate, delete_run
from syncline.runs.run_list import RunSummary
from syncline.runs.run_storage import LocalDirectory, StorageDirectory

SUMMARY = RunSummary(
    name="",
    path="",
    state="finished",
    started=100.0,
    ended=110.0,
    last_activity=110.0,
    host="box",
    workers=2,
    attempts=1,
    reports=3,
    metrics={"loss": 0.25},
    checkpoints=0,
    error=None,
)


class Storage:
    """Runs by name, with the number of summaries made of each."""

    def __init__(self, runs: Mapping[str, RunSummary]) -> None:
        self.runs = dict(runs)
        self.listed = {name: run.started or 0.0 for name, run in runs.items()}
        self.read: list[str] = []
        self.now = 1_000.0
        self.broken = False
        self.run_index = RunIndex(
            [LocalDirectory("/runs")],
            clock=lambda: self.now,
            names=self._names,
            summarize=self._summarize,
        )
        self.run_index.refresh()

    def _names(self, storage: StorageDirectory) -> list[tuple[str, float]]:
        if self.broken:
            raise PermissionError("not yours")
        return sorted(self.listed.items(), key=lambda item: item[1], reverse=True)

    def _summarize(self, run: StorageDirectory) -> RunSummary:
        name = run.path.rpartition("/")[2]
        self.read.append(name)
        return replace(self.runs[name], name=name)

    def names(self, **query: object) -> list[str]:
        return [row.directory for row in self.run_index.select_fresh(Query(**query)).rows]


def storage_of(count: int) -> Storage:
    return Storage(
        {f"run-{number:03d}": replace(SUMMARY, started=float(number)) for number in range(count)}
    )


def test_the_newest_come_first_and_only_those_that_are_shown_are_read():
    storage = storage_of(120)
    chosen = storage.run_index.select_fresh(Query())
    assert [row.directory for row in chosen.rows] == [
        f"run-{number:03d}" for number in range(119, 69, -1)
    ]
    assert (chosen.matching, chosen.known, chosen.unread) == (120, 120, 120 - PAGE_ROWS)
    assert len(storage.read) == PAGE_ROWS
    assert all(row.summary is not None for row in chosen.rows)


def test_pages_go_on_where_the_last_one_ended_and_stop_at_the_end():
    storage = storage_of(120)
    assert storage.names(page=1)[0] == "run-069"
    assert storage.names(page=2)[-1] == "run-000"
    chosen = storage.run_index.select_fresh(Query(page=99))
    assert (chosen.page, len(chosen.rows)) == (2, 20)


def test_runs_that_have_ended_are_read_once_and_running_ones_again():
    storage = Storage(
        {
            "done": SUMMARY,
            "live": replace(SUMMARY, state="running"),
            "bad": replace(SUMMARY, state="unreadable"),
        }
    )
    storage.names()
    storage.now += FRESH_S + 0.1
    storage.names()
    storage.now += PATIENCE_S + 0.1
    storage.names()
    assert {name: storage.read.count(name) for name in storage.runs} == {
        "done": 1,
        "live": 3,
        "bad": 2,
    }


def test_a_run_that_was_started_again_is_read_again():
    storage = Storage({"a": SUMMARY})
    storage.names()
    storage.runs["a"] = replace(SUMMARY, state="running")
    storage.listed["a"] = 900.0
    storage.run_index.refresh()
    assert storage.run_index.select_fresh(Query()).rows[0].summary.state == "running"


def test_runs_that_are_removed_leave_the_list():
    storage = storage_of(3)
    storage.names()
    del storage.listed["run-001"]
    storage.run_index.refresh()
    assert storage.names() == ["run-002", "run-000"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("RESNET", ["resnet"]),
        ("boom", ["bert"]),
        ("box2", ["bert"]),
        ("loss=0.25 finished", ["resnet"]),
        ("tune", ["resnet"]),
        ("x y", []),
    ],
)
def test_the_search_looks_at_name_state_kind_host_error_and_metrics(words: str, found: list[str]):
    bert = replace(
        SUMMARY, state="errored", error="Traceback\nValueError: Boom", host="box2", metrics={}
    )
    storage = Storage({"resnet": replace(SUMMARY, kind="tune"), "bert": bert})
    storage.names()
    assert storage.names(q=words) == found


def test_filters_by_state_and_kind_leave_out_what_is_not_read_yet():
    storage = Storage(
        {
            "a": SUMMARY,
            "b": replace(SUMMARY, state="killed"),
            "c": replace(SUMMARY, state="killed", kind="data"),
        }
    )
    assert storage.run_index.select(Query(state="killed")).matching == 0
    chosen = storage.run_index.select_fresh(Query())
    assert (chosen.states, chosen.kinds) == ([], [])
    assert sorted(storage.names(state="killed")) == ["b", "c"]
    assert storage.names(state="killed", kind="data") == ["c"]
    assert storage.run_index.select(Query()).states == ["finished", "killed"]


@pytest.mark.parametrize("descending", [False, True])
def test_what_is_not_known_comes_last_either_way(descending: bool):
    storage = Storage(
        {
            "a": replace(SUMMARY, workers=8),
            "b": replace(SUMMARY, workers=None),
            "c": replace(SUMMARY, workers=2),
        }
    )
    storage.names()
    assert storage.names(sort="workers", descending=descending) == (
        ["a", "c", "b"] if descending else ["c", "a", "b"]
    )


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("strange", [float("nan"), float("inf"), -1e300, None])
def test_every_column_sorts_whatever_a_record_says(sort: str, strange: float | None):
    odd = replace(
        SUMMARY,
        started=strange,
        ended=strange,
        last_activity=strange,
        reports=10**400,
        metrics={"a": 10**400, "b": strange},
    )
    storage = Storage({"a": SUMMARY, "b": SUMMARY})
    storage.runs["b"] = odd
    storage.names()
    assert sorted(storage.names(sort=sort)) == ["a", "b"]


def test_a_storage_path_that_cannot_be_listed_is_named_and_the_others_are_shown():
    storage = storage_of(2)
    storage.broken = True
    storage.run_index.refresh()
    chosen = storage.run_index.select_fresh(Query())
    assert chosen.rows == []
    assert "Cannot list /runs (not yours)" in chosen.problems[0]


def test_an_address_gives_back_the_query_that_it_was_made_from():
    for query in (
        Query(),
        Query(q="a b&c", state="killed", kind="tune", sort="name", descending=False, page=3),
        Query(sort="duration"),
    ):
        given = dict(
            pair.split("=")
            for pair in query.address().replace("+", " ").replace("%26", "&").split("&")
            if "=" in pair
        )
        if "&" not in query.q:
            assert Query.of(given) == query
    assert Query().address() == ""
    assert "a+b%26c" in Query(q="a b&c").address()


@pytest.mark.parametrize(
    "parameters",
    [
        {"sort": "__class__"},
        {"page": "-1"},
        {"page": "9" * 50},
        {"page": "x"},
        {"page": "\u0663"},
        {"sort": "-"},
    ],
)
def test_an_address_that_makes_no_sense_shows_the_list_as_it_is_at_first(
    parameters: Mapping[str, str],
):
    assert Query.of(parameters) == Query()


def test_a_thread_reads_the_rest_and_keeps_up(tmp_path: Path):
    for number in range(3):
        with RunDirectory(LocalFiles(tmp_path / f"run-{number}")) as run:
            run.write_run(f"run-{number}", {})
            run.report(0, 0, {"loss": 1.0})
            run.write_outcome("finished")
    run_index = RunIndex([LocalDirectory(tmp_path)])
    stop = threading.Event()
    thread = threading.Thread(target=run_index.run_updates, args=(stop,), daemon=True)
    thread.start()
    try:
        for _ in range(500):
            if run_index.select(Query(q="loss=1")).matching == 3:
                break
            stop.wait(0.01)
        assert run_index.select(Query(q="loss=1")).unread == 0
    finally:
        stop.set()
        thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "/etc", "a\0b", "a\\b"])
def test_no_name_leads_out_of_a_storage_path(tmp_path: Path, name: str):
    with pytest.raises(ValueError):
        RunIndex([LocalDirectory(tmp_path)]).run_directory(0, name)


@pytest.mark.parametrize("number", [-1, 1, 99])
def test_there_are_no_other_storage_paths(tmp_path: Path, number: int):
    with pytest.raises(LookupError):
        RunIndex([LocalDirectory(tmp_path)]).run_directory(number, "a")


def test_a_link_in_a_storage_path_is_no_run(tmp_path: Path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match="symbolic link"):
        RunIndex([LocalDirectory(tmp_path / "runs")]).run_directory(0, "link")


def test_metrics_are_told_shortly():
    assert (
        metrics_text({"loss": 0.123456, "name": "x", "ok": True, "a": 1, "b": 2, "c": 3})
        == "loss=0.1235 a=1 b=2 …"
    )
    assert metrics_text({"big": 10**400}) == "big=huge"


@pytest.mark.parametrize(
    ("trials", "text"),
    [
        (None, "3 reports"),
        ({"TERMINATED": 2, "ERROR": 1, "RUNNING": 4, "expected": 50}, "3 of 50 trials"),
        ({"PENDING": 1}, "0 trials"),
        ({"TERMINATED": 10**400}, "huge trials"),
    ],
)
def test_progress_is_told_in_trials_or_reports(trials: Mapping[str, int] | None, text: str):
    assert progress_text(replace(SUMMARY, trials=trials)) == text


def test_a_dataset_reports_nothing():
    assert progress_text(replace(SUMMARY, kind="data")) == ""


def test_runs_are_listed_with_columns_of_parameters_and_metrics():
    storage = Storage(
        {
            "a": replace(SUMMARY, parameters={"lr": 0.1, "opt": "sgd"}, metrics={"m": {"acc": 3}}),
            "b": replace(SUMMARY, parameters={"lr": 0.3}),
            "c": replace(SUMMARY, parameters={"lr": "auto"}),
            "d": SUMMARY,
        }
    )
    chosen = storage.run_index.select_fresh(Query())
    chosen = storage.run_index.select(Query())
    assert chosen.offered == ["parameter:lr", "parameter:opt", "metric:loss", "metric:m/acc"]
    assert storage.names(sort="parameter:lr", descending=False) == ["a", "b", "c", "d"]
    assert storage.names(sort="parameter:lr", descending=True)[:3] == ["c", "b", "a"]
    assert storage.names(sort="metric:m/acc")[0] == "a"
    row = next(row for row in chosen.rows if row.directory == "a")
    shown = shown_row(row, "/runs", ("parameter:lr", "metric:m/acc", "metric:gone"))
    assert (shown["column0"], shown["column1"], shown["column2"]) == ("0.1", "3", "")


def test_the_address_keeps_columns_and_their_order():
    query = Query(columns=("parameter:a,b", "metric:loss"), sort="metric:loss", archived=True)
    assert Query.of(dict(parse_qsl(query.address()))) == query
    for text in ("{", "3", '["loss", 3]', '["x:y"]'):
        assert Query.of({"columns": text}).columns == ()


def test_archived_runs_are_shown_only_on_request():
    storage = Storage({"a": SUMMARY, "b": replace(SUMMARY, archived=True, tags=("old",))})
    assert sorted(storage.names()) == ["a", "b"]  # nothing was read before
    assert storage.names() == ["a"]
    assert storage.names(archived=True, q="old") == ["b"]
    assert storage.run_index.select(Query()).known == 1


def test_tags_and_notes_of_ended_runs_are_read_again(tmp_path):
    with RunDirectory(LocalFiles(tmp_path / "a")) as record:
        record.write_run("a", {}, detailed=False)
        record.write_outcome("finished")
    index = RunIndex([LocalDirectory(tmp_path)])
    index.refresh()
    assert index.select_fresh(Query()).rows[0].summary.tags == ()
    annotate(LocalDirectory(tmp_path / "a"), add_tags=["mine"], note="why")
    index.refresh()
    (row,) = index.select(Query(q="mine why")).rows
    assert (row.summary.tags, row.summary.note) == (("mine",), "why")


def test_a_run_that_the_dashboard_deleted_leaves_the_list(tmp_path):
    with RunDirectory(LocalFiles(tmp_path / "a")) as record:
        record.write_run("a", {}, detailed=False)
        record.write_outcome("finished")
    index = RunIndex([LocalDirectory(tmp_path)])
    index.refresh()
    delete_run(LocalDirectory(tmp_path / "a"))
    index.changed((0, "a"))
    assert index.select(Query()).known == 0
