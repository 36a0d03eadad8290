"""Comparison of runs, without a browser."""

from pathlib import Path

from syncline import runs
from syncline.dashboard.comparison import (
    MAX_ROWS,
    ComparedRow,
    configuration_rows,
    curve_member,
    environment_rows,
    flat,
    metric_rows,
)
from syncline.dashboard.pages.compare_page import address_of, keys_of
from syncline.runs import LocalFiles, Run, RunDirectory


def recorded(path: Path, config: object, *, kind: str = "train", ranks: int = 1) -> Run:
    with RunDirectory(LocalFiles(path)) as record:
        record.write_run(path.name, config, kind=kind, detailed=False)
        for rank in range(ranks):
            record.report(0, rank, {"loss": 0.5 + rank})
    return runs.open(path)


def by_name(rows: list[ComparedRow]) -> dict[str, tuple[str, ...]]:
    return {row.name: row.values for row in rows}


def test_configurations_are_compared_value_by_value(tmp_path: Path) -> None:
    first = {"train_config": {"lr": 0.1, "model": {"layers": 3}}, "run_config": {"name": "a"}}
    second = {"train_config": {"lr": 0.2, "model": {"layers": 3}, "seed": None}, "workers": 2}
    rows = configuration_rows([recorded(tmp_path / "a", first), recorded(tmp_path / "b", second)])
    assert by_name(rows) == {
        "lr": ("0.1", "0.2"),
        "model/layers": ("3", "3"),
        "seed": ("", "null"),
        "workers": ("", "2"),
    }
    assert [row.name for row in rows if row.differs] == ["lr", "seed", "workers"]


def test_environments_leave_out_what_each_process_has_of_its_own(tmp_path: Path) -> None:
    rows = environment_rows([recorded(tmp_path / name, {}) for name in "ab"])
    assert not [row.name for row in rows if row.differs]
    assert "python" in by_name(rows)


def test_metrics_are_those_of_the_latest_report(tmp_path: Path) -> None:
    found = [recorded(tmp_path / name, {}).summary for name in "ab"]
    rows = by_name(metric_rows(found))
    assert rows["loss"] == ("0.5", "0.5")
    assert rows["reports"] == ("1", "1")


def test_a_curve_stands_for_each_kind_of_run(tmp_path: Path) -> None:
    one, two = recorded(tmp_path / "a", {}), recorded(tmp_path / "b", {}, ranks=2)
    assert curve_member(one, one.series, "loss") == "0"
    assert curve_member(two, two.series, "loss") is None  # the mean
    with RunDirectory(LocalFiles(tmp_path / "c")) as record:
        record.write_run("c", {}, kind="tune", detailed=False)
        for trial in ("t1", "t2"):
            record.report(0, trial, {"loss": 1.0})
        record.write_search({"best": {"trial": "t2", "metrics": {"loss": 1.0}}})
    search = runs.open(tmp_path / "c")
    assert curve_member(search, search.series, "loss") == "t2"
    assert curve_member(search, search.series, "unknown") == ""


def test_the_number_of_rows_is_bounded() -> None:
    deep: dict[str, object] = {}
    deep["d"] = deep
    assert len(flat({"deep": {"a": {"b": 1}}, **{f"n{n}": n for n in range(9_999)}})) == MAX_ROWS


def test_runs_are_named_in_the_address() -> None:
    keys = [(0, "a b"), (1, "c&d/ü")]
    address = address_of(keys)
    assert address == "/compare?run=0%2Fa+b&run=1%2Fc%26d%2F%C3%BC"
    assert keys_of(["0/a b", "1/c&d/ü", "0/a b"]) == keys
    assert keys_of(["", "x/y", "²/a", "0/", "-1/a", "999999/a"]) == []
    assert len(keys_of([f"0/{number}" for number in range(100)])) == 20
