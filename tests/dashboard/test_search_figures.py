"""Figures of a search: selected curves, axes, importance."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from syncline.dashboard.search_figures import (
    MIN_TRIALS,
    OTHERS,
    choose_axis,
    color_range,
    importance_of,
    latest_results,
    parallel_coordinates,
    select_curves,
)
from syncline.dashboard.search_trials import TrialReader, TrialView
from syncline.runs.metric_series import Series


def searched(
    count: int, reports: int = 5, status: str = "TERMINATED"
) -> tuple[tuple[TrialView, ...], Series]:
    """Trials whose results depend on `lr` only; the first is the best."""
    found, series, drawn = TrialReader(), Series(), random.Random(1)
    for number in range(count):
        trial_id = f"a_{number}"
        config = {
            "lr": 10.0 ** (-4 * number / count),
            "noise": drawn.random(),
            "act": drawn.choice(["relu", "gelu"]),
            "seed": 7,
        }
        found.add(
            [
                {
                    "trial": trial_id,
                    "status": status,
                    "iteration": reports,
                    "config": config,
                    "metrics": {"loss": float(number)},
                }
            ]
        )
        for at in range(1, reports + 1):
            series.add(
                {
                    "trial": trial_id,
                    "iteration": at,
                    "time": 100.0 * number + at,
                    "metrics": {"loss": number + 1.0 / at},
                }
            )
    return found.snapshot().trials, series


def test_all_curves_are_drawn_where_there_are_few_the_best_last() -> None:
    trials, series = searched(4)
    curves = select_curves(trials, series, "loss", "min", "iteration")
    assert [curve.trial.id for curve in curves.curves] == ["a_3", "a_2", "a_1", "a_0"]
    assert curves.curves[-1].rank == 0
    assert list(curves.curves[-1].x) == [1, 2, 3, 4, 5]
    assert curves.left_out == ""


def test_time_counts_from_each_trials_first_result() -> None:
    trials, series = searched(3)
    assert [
        list(curve.x) for curve in select_curves(trials, series, "loss", "min", "time").curves
    ] == [[0, 1, 2, 3, 4]] * 3


def test_of_many_trials_a_selection_with_bounded_points_is_drawn() -> None:
    trials, series = searched(1_000, reports=50)
    running, more = searched(1, status="RUNNING")
    series.add({"trial": "r_0", "iteration": 1, "time": 0.0, "metrics": {"loss": 999.0}})
    runs = TrialView(id="r_0", index=1_000, status="RUNNING")
    curves = select_curves(
        [*trials, runs], series, "loss", "min", "iteration", most=30, most_points=300
    )
    drawn = {curve.trial.id for curve in curves.curves}
    assert len(curves.curves) == 30
    assert {f"a_{number}" for number in range(10)} | {"r_0"} <= drawn
    assert any(int(name.split("_")[1]) > 900 for name in drawn - {"r_0"})
    assert sum(len(curve.x) for curve in curves.curves) <= 300
    assert "30 of 1001 trials" in curves.left_out


def test_the_latest_results_of_running_trials_are_found() -> None:
    trials, series = searched(2, reports=40, status="RUNNING")
    assert latest_results(trials, series) == {
        name: (40, {"loss": pytest.approx(number + 1 / 40)})
        for number, name in enumerate(("a_0", "a_1"))
    }
    assert latest_results(searched(2)[0], series) == {}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5, 3], "value"),
        ([1e-4, 1e-1], "log"),
        ([0.0, 1e4], "value"),
        ([1, None, 3], "value"),
        (["a", "b"], "category"),
        ([True, False], "category"),
        ([1, "auto"], "category"),
        ([None, None], "category"),
    ],
)
def test_an_axis_suits_its_values(values: list[Any], kind: str) -> None:
    assert choose_axis("x", values).kind == kind


def test_rare_categories_share_a_place() -> None:
    axis = choose_axis("x", [f"c{number}" for number in range(100)])
    assert axis.categories[-1] == OTHERS
    assert len(axis.categories) == 21


def test_parallel_coordinates_have_a_value_for_each_axis() -> None:
    trials, _ = searched(20)
    parallel = parallel_coordinates(
        trials, ("lr", "noise", "act", "missing"), "loss", "min", most=5
    )
    assert [axis.kind for axis in parallel.axes] == [
        "log",
        "value",
        "category",
        "category",
        "value",
    ]
    assert [trial.id for trial, _ in parallel.lines][-1] == "a_0"
    assert all(len(values) == 5 for _, values in parallel.lines)
    assert all(values[2] in (0.0, 1.0) and values[3] == 0.0 for _, values in parallel.lines)
    assert "5 of 20 trials" in parallel.left_out
    many = parallel_coordinates(trials, [f"p{number}" for number in range(50)], "loss", "min")
    assert len(many.axes) == 11
    assert "10 of 50 parameters" in many.left_out


def test_single_values_far_away_do_not_take_the_colours() -> None:
    values = [number / 100 for number in range(100)]
    low, high = color_range([*values, 1e9])
    assert low == 0.0
    assert high < 3
    assert color_range([]) == (0.0, 1.0)
    assert color_range([5.0, 5.0]) == (5.0, 10.0)
    assert all(math.isfinite(end) for end in color_range([-1e308, 1e308] * 30))


def test_the_parameter_that_decides_is_the_important_one() -> None:
    trials, _ = searched(60)
    varying = ("lr", "noise", "act")
    importance = importance_of(trials, varying, "loss", "min")
    assert importance.shares[0][0] == "lr"
    assert importance.shares[0][1] > 0.5
    assert sum(share for _, share in importance.shares) == pytest.approx(1.0)
    assert importance_of(trials, varying, "loss", "min") == importance


def test_nothing_is_concluded_from_few_trials_or_none_that_differ() -> None:
    trials, _ = searched(MIN_TRIALS - 1)
    assert str(MIN_TRIALS) in importance_of(trials, ("lr",), "loss", "min").problem
    trials, _ = searched(MIN_TRIALS)
    assert "have the same parameters" in importance_of(trials, ("seed",), "loss", "min").problem


def test_parameters_of_all_kinds_can_be_compared() -> None:
    found, drawn = TrialReader(), random.Random(2)
    for number in range(40):
        config = {
            "big": 10**18 * number,
            "none": drawn.choice([None, 1, "x"]),
            "flag": drawn.random() < 0.5,
            ":key": drawn.random(),
        }
        config |= {"rare": 1} if number == 0 else {}
        found.add(
            [
                {
                    "trial": f"a_{number}",
                    "status": "TERMINATED",
                    "config": config,
                    "metrics": {"loss": float(number)},
                }
            ]
        )
    importance = importance_of(
        found.snapshot().trials, ("big", "none", "flag", ":key", "rare"), "loss", "max"
    )
    assert importance.problem == ""
    assert {name for name, _ in importance.shares} == {"big", "none", "flag", ":key"}
