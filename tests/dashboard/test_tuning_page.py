"""Data that the tuning page sends to browsers, for any record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nicegui")

from syncline.dashboard.pages.tuning_figures import curve_lines, parallel_options
from syncline.dashboard.pages.tuning_page import compared_returns
from syncline.dashboard.pages.tuning_table import TableContents, row_of, table_columns
from syncline.dashboard.pages.tuning_trial import TAIL_BYTES, read_output
from syncline.dashboard.rl_figures import RETURN
from syncline.dashboard.search_figures import parallel_coordinates, select_curves
from syncline.dashboard.search_table import Field
from syncline.dashboard.search_trials import SearchSnapshot, TrialReader
from syncline.runs.metric_series import Series
from syncline.runs.run_storage import LocalDirectory

EVIL = "<img src=x onerror=alert(1)>"


def hostile() -> SearchSnapshot:
    found = TrialReader()
    for number in range(3):
        config = {":formatter": f"() => alert({number})", EVIL: number, "lr": 10.0 ** (-3 * number)}
        metrics = {":loss": float(number), "loss": float(number)}
        found.add(
            [
                {
                    "trial": f"a_{number}",
                    "name": f":{EVIL}",
                    "status": "RUNNING",
                    "config": config,
                    "metrics": metrics,
                    "error": EVIL,
                }
            ]
        )
    return found.snapshot()


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


def test_no_key_of_a_chart_comes_from_a_run_and_only_colours_are_expressions() -> None:
    snapshot = hostile()
    options = parallel_options(
        parallel_coordinates(snapshot.trials, snapshot.varying, ":loss", "min")
    )
    assert {key for key in keys(options) if key.startswith(":")} <= {
        ":color",
        ":backgroundColor",
        ":borderColor",
    }
    assert not [key for key in keys(options) if "img" in key]


def test_an_axis_over_decades_ends_at_powers_of_ten() -> None:
    snapshot = hostile()
    options = parallel_options(parallel_coordinates(snapshot.trials, ("lr",), "loss", "min"))
    axes: Any = options["parallelAxis"]
    assert (axes[0]["type"], axes[0]["min"], axes[0]["max"]) == ("log", pytest.approx(1e-6), 1.0)


def test_columns_are_named_by_the_page_and_rows_have_a_text_for_each() -> None:
    snapshot = hostile()
    chosen = [Field(source="parameter", name=name) for name in snapshot.varying]
    shaped = table_columns(TableContents(snapshot=snapshot, metric=":loss", is_alive=True), chosen)
    names = [each.column.name for each in shaped]
    assert len(set(names)) == len(names)
    assert all(name.isalnum() for name in names)
    row = row_of(snapshot.trials[1], shaped, is_alive=True)
    assert row.keys() == {"key", *names}
    assert all(isinstance(value, str) for value in row.values())


def test_a_running_trial_of_a_search_that_does_not_run_was_killed() -> None:
    snapshot = hostile()
    shaped = table_columns(TableContents(snapshot=snapshot, metric=None, is_alive=False), [])
    assert row_of(snapshot.trials[0], shaped, is_alive=True)["status"] == "running"
    assert row_of(snapshot.trials[0], shaped, is_alive=False)["status"] == "killed"


def test_the_best_curves_are_thick_and_the_others_thin() -> None:
    found, series = TrialReader(), Series()
    for number in range(6):
        found.add([{"trial": f"a_{number}", "metrics": {"loss": float(number)}}])
        series.add(
            {
                "trial": f"a_{number}",
                "iteration": 1,
                "time": 0.0,
                "metrics": {"loss": float(number)},
            }
        )
    lines = curve_lines(select_curves(found.snapshot().trials, series, "loss", "min", "iteration"))
    assert [line.faint for line in lines] == [True, True, True, False, False, False]
    assert lines[-1].name == "1. a_0"


def test_what_a_trial_printed_is_read_from_its_own_directory_only(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "stdout").write_text("secret")
    search = tmp_path / "search"
    (search / "train_0").mkdir(parents=True)
    (search / "train_0" / "stdout").write_text(
        "first\n" + "x" * TAIL_BYTES + "\nlast token=hf_0123456789abcdefghijABCDEFGHIJ\n"
    )
    (search / "train_0" / "params.pkl").write_bytes(b"never read")
    (search / "train_0" / "stderr").symlink_to(tmp_path / "outside" / "stdout")
    place = LocalDirectory(search)
    ((name, text),) = read_output(place, "train_0")
    assert name == "stdout"
    assert text == "last token=***\n"
    for directory in ("../outside", "..", "", "/etc", "missing", "a\0b"):
        assert read_output(place, directory) == []


def test_the_trials_with_returns_are_looked_up_once_for_all_trials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lookup for each trial let the page of a search with 10 000 trials hang."""
    lookups: list[str] = []
    members_of = Series.members_of

    def counted(series: Series, name: str) -> list[str]:
        lookups.append(name)
        return members_of(series, name)

    monkeypatch.setattr(Series, "members_of", counted)
    found, series = TrialReader(), Series()
    for number in range(30):
        trial = f"a_{number}"
        found.add([{"trial": trial, "name": trial, "status": "RUNNING", "config": {"lr": number}}])
        name = RETURN if number % 2 else "loss"
        series.add({"trial": trial, "iteration": 1, "time": 1.0, "metrics": {name: 1.0}})
    compared = compared_returns(found.snapshot(), series)
    assert [one.member for one in compared] == [f"a_{number}" for number in range(1, 30, 2)]
    assert lookups == [RETURN]
