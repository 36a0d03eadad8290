"""Curves from reports: names, members, resumed runs, thinning with peaks, invalid reports."""

import math

import numpy as np
import pytest

from syncline.runs import metric_series
from syncline.runs.metric_series import Series, thinned


def series_of(*records) -> Series:
    made = Series()
    for record in records:
        made.add(record)
    return made


def report(iteration, rank=0, time=None, **metrics):
    return {
        "iteration": iteration,
        "time": 100.0 + iteration if time is None else time,
        "rank": rank,
        "metrics": metrics,
    }


def test_nested_numbers_are_curves_and_other_values_are_not() -> None:
    made = series_of(
        report(0, loss=1, text="x", ok=True, inner={"a": 2.0}),
        report(1, loss=0.5, none=None, values=[1, 2]),
    )
    assert made.names == ["loss", "inner/a"]
    assert made.curve("loss", "0") == ([0.0, 1.0], [1.0, 0.5])
    assert made.curve("loss", "0", over="time")[0] == [100.0, 101.0]
    assert made.curve("loss", "7") == ([], [])
    assert made.last("0") == {"loss": 0.5, "none": None, "values": [1, 2]}


def test_mean_over_those_who_reported() -> None:
    made = series_of(report(0, 0, loss=1.0), report(0, 1, loss=3.0), report(1, 1, loss=5.0))
    assert made.reduced("loss") == ([0.0, 1.0], [2.0, 5.0])
    assert made.reduced("nothing") == ([], [])
    assert made.members == ["0", "1"]


def test_ranks_are_in_the_order_of_numbers_and_trials_by_name() -> None:
    made = series_of(
        report(0, 10, a=1),
        report(0, 2, a=1),
        {"iteration": 0, "time": 1.0, "trial": "b_1", "metrics": {"c": 1}},
    )
    assert made.members == ["2", "10", "b_1"]
    assert made.members_of("c") == ["b_1"]


def test_what_was_trained_again_takes_the_place_of_what_was_lost() -> None:
    made = series_of(
        *(report(index, loss=index) for index in range(5)), report(2, loss=20), report(3, loss=30)
    )
    assert made.curve("loss", "0") == ([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 20.0, 30.0])


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"iteration": "x", "time": 1.0, "rank": 0, "metrics": {"a": 1}},
        {"iteration": 1, "time": None, "rank": 0, "metrics": {"a": 1}},
        {"iteration": 1, "time": 1.0, "rank": [], "metrics": {"a": 1}},
        {"iteration": 1, "time": 1.0, "rank": 0, "metrics": [1]},
    ],
)
def test_reports_of_other_forms_are_passed_over(record) -> None:
    assert series_of(record).names == []


def test_excess_metrics_are_not_kept(monkeypatch) -> None:
    monkeypatch.setattr(metric_series, "MAX_NAMES", 3)
    made = series_of(report(0, **{f"m{number}": 1 for number in range(10)}))
    assert made.names == ["m0", "m1", "m2"]


def test_thinning_keeps_ends_and_peaks() -> None:
    x = np.arange(100_000.0)
    y = np.sin(x / 5000)
    y[12_345], y[77_777] = 50.0, -50.0
    shown_x, shown_y = thinned(x, y, 1000)
    assert len(shown_x) <= 1002
    assert (shown_x[0], shown_x[-1]) == (0.0, 99_999.0)
    assert max(shown_y) == 50.0
    assert min(shown_y) == -50.0
    assert shown_x == sorted(shown_x)


def test_short_curves_are_left_alone_and_gaps_do_not_disturb() -> None:
    assert thinned(np.arange(3.0), np.array([1.0, math.nan, 2.0]), 2)[0] == [0.0, 1.0, 2.0]
    assert len(thinned(np.arange(1000.0), np.full(1000, math.nan), 10)[0]) <= 12


def lines_of(kind: str, generator: np.random.Generator) -> list[dict]:
    """Many reports of two ranks, of one form or of several."""
    found = []
    for index in range(60):
        number = index if kind != "restarts" or index < 30 else index - 12
        for rank in (0, 1):
            metrics: dict = {"loss": float(generator.normal()), "step": index}
            if kind == "alternating" and index % 3:
                metrics["val"] = 1.0
            if kind == "texts":
                metrics |= {"phase": "train", "done": False, "none": None, "list": [1]}
            if kind == "mixed" and index % 7 == 0:
                metrics["loss"] = None
            if kind == "nested":
                metrics["inner"] = {"a": index, "b": {"c": True, "d": 2.5}}
            if kind == "huge":
                metrics["loss"] = 10**400 if index % 9 == 0 else math.nan
            if kind == "orders" and index % 2:
                metrics = dict(reversed(metrics.items()))
            found.append(
                {"iteration": number, "time": 100.0 + index, "rank": rank, "metrics": metrics}
            )
        if kind == "odd":
            found += [
                {"metrics": {"loss": 1}},
                {"iteration": True, "time": 1.0, "rank": 0, "metrics": {"loss": 1}},
                {"rank": 0},
            ]
    return found


@pytest.mark.parametrize(
    "kind",
    ["plain", "restarts", "alternating", "texts", "mixed", "nested", "huge", "orders", "odd"],
)
def test_many_lines_at_once_come_to_the_same_as_one_by_one(kind: str) -> None:
    records = lines_of(kind, np.random.default_rng(1))
    single, together = series_of(*records), Series()
    for start in range(0, len(records), 37):
        together.extend(records[start : start + 37])
    assert set(together.names) == set(single.names)
    assert together.members == single.members
    for name in single.names:
        for member in single.members:
            for over in ("iteration", "time"):
                np.testing.assert_equal(
                    together.curve(name, member, over=over), single.curve(name, member, over=over)
                )
    assert [together.last(member) for member in single.members] == [
        single.last(member) for member in single.members
    ]


def test_more_metrics_than_are_kept_are_left_out_of_many_lines_too(monkeypatch) -> None:
    monkeypatch.setattr(metric_series, "MAX_NAMES", 2)
    made = Series()
    made.extend([report(index, a=1, b=2, c=3) for index in range(10)])
    assert made.names == ["a", "b"]
    assert len(made.curve("b", "0")[0]) == 10
