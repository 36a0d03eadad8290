"""Axes and smoothing of curves."""

import math

import numpy as np
import pytest

from syncline.dashboard.metric_curves import (
    Curve,
    CurveStyle,
    axis_names,
    curve_of,
    elapsed_unit,
    smoothed,
)
from syncline.runs.metric_series import Series


@pytest.fixture
def series() -> Series:
    """Six reports of two ranks: two per epoch; the third one has no step."""
    made = Series()
    for number in range(6):
        for rank in (0, 1):
            metrics = {"epoch": number // 2, "loss": float(number + rank), "step": 10 * number}
            if number == 2:
                del metrics["step"]
            made.add(
                {"iteration": number, "time": 100.0 + number, "rank": rank, "metrics": metrics}
            )
    return made


def test_axes_are_reports_counters_and_time() -> None:
    assert axis_names(["loss", "epoch", "train/global_step", "epochs"]) == {
        "report": "report",
        "metric:epoch": "epoch",
        "metric:train/global_step": "train/global_step",
        "elapsed": "time since start",
        "time": "date and time",
    }


@pytest.mark.parametrize(
    ("over", "x", "y"),
    [
        ("report", [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
        ("time", [100, 101, 102, 103, 104, 105], [0, 1, 2, 3, 4, 5]),
        ("elapsed", [10, 11, 12, 13, 14, 15], [0, 1, 2, 3, 4, 5]),
        ("metric:epoch", [0, 1, 2], [0.5, 2.5, 4.5]),
        ("metric:step", [0, 10, 30, 40, 50], [0, 1, 3, 4, 5]),
        ("metric:unknown", [], []),
    ],
)
def test_a_curve_on_each_axis(series: Series, over: str, x: list[float], y: list[float]) -> None:
    style = CurveStyle(over=over)
    assert curve_of(series, "loss", "0", style, start=90.0) == Curve(x=x, y=y)
    mean = curve_of(series, "loss", None, style, start=90.0)
    assert (mean.x, mean.y) == (x, [value + 0.5 for value in y])


def test_unknown_metrics_and_members_have_no_points(series: Series) -> None:
    for over in ("report", "metric:epoch"):
        for member in ("7", None):
            name = "loss" if member else "unknown"
            style = CurveStyle(over=over, smoothing=0.5)
            assert curve_of(series, name, member, style) == Curve(x=[], y=[])


def test_smoothing_is_the_corrected_moving_average() -> None:
    values = np.array([4.0, 0.0, 2.0])
    expected = [4.0, (0.5 * 4) / 1.5, (0.25 * 4 + 2.0) / 1.75]
    assert smoothed(values, 0.5).tolist() == pytest.approx(expected)
    assert smoothed(np.ones(100), 0.99).tolist() == pytest.approx([1.0] * 100)


def test_smoothing_skips_values_that_are_not_finite() -> None:
    found = smoothed(np.array([1.0, math.nan, math.inf, 1.0]), 0.9)
    assert found[[0, 3]].tolist() == pytest.approx([1.0, 1.0])
    assert math.isnan(found[1])


def test_a_smoothed_curve_comes_with_its_values(series: Series) -> None:
    curve = curve_of(series, "loss", "0", CurveStyle(smoothing=0.6))
    assert curve.y == [0, 1, 2, 3, 4, 5]
    assert curve.smooth_x == curve.x
    assert curve.smooth_y[0] == 0
    assert curve.smooth_y[-1] < 5


def test_units_of_elapsed_time() -> None:
    assert [elapsed_unit(seconds)[1] for seconds in (5, 599, 600, 17_999, 18_000)] == [
        "s",
        "s",
        "min",
        "min",
        "h",
    ]
