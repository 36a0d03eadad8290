"""Progress of a run from its metrics and configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from syncline.runs.run_progress import Progress, ProgressMeter


def after(
    config: Mapping[str, Any],
    reports: Sequence[Mapping[str, Any]],
    *,
    first_index: int = 0,
    fresh: bool = True,
) -> Progress | None:
    """A report each second, beginning one second after the attempt began; asked with the last
    report.
    """
    meter = ProgressMeter(config)
    meter.attempt_began(0.0, is_fresh=fresh)
    for number, metrics in enumerate(reports):
        meter.reported(metrics, first_index + number, number + 1.0)
    return meter.progress(float(len(reports)))


def counter(name: str, values: Sequence[float]) -> list[dict[str, float]]:
    return [{name: value} for value in values]


@pytest.mark.parametrize(
    ("config", "reports", "done", "total", "unit"),
    [
        ({"epochs": 10}, counter("epoch", [0, 1, 2]), 3, 10, "epoch"),
        ({"epochs": 10}, counter("epoch", [1, 2]), 2, 10, "epoch"),
        ({"num_epochs": 4.0}, counter("epoch", [0]), 1, 4, "epoch"),
        ({"max_epochs": 4}, counter("current_epoch", [1.5]), 1.5, 4, "epoch"),
        ({"max_steps": 1000}, counter("global_step", [100, 200]), 200, 1000, "step"),
        ({"steps": 1000}, counter("step", [0, 100]), 101, 1000, "step"),
        ({"num_iterations": 5}, counter("training_iteration", [1]), 1, 5, "iteration"),
        ({"epochs": 3, "max_steps": 60}, [{"epoch": 0, "step": 20}], 20, 60, "step"),
        ({"epochs": 3, "max_steps": -1}, [{"epoch": 0, "step": 20}], 1, 3, "epoch"),
        ({"epochs": 3}, [{"progress": 0.25, "epoch": 0}], 0.25, 1, ""),
        ({"epochs": 3}, [{"progress": 25, "epoch": 0}], 1, 3, "epoch"),
    ],
)
def test_counters_are_compared_with_their_ends(
    config: dict[str, Any], reports: list[dict[str, float]], done: float, total: float, unit: str
) -> None:
    progress = after(config, reports)
    assert progress is not None
    assert (progress.done, progress.total, progress.unit) == (done, total, unit)
    assert progress.share == pytest.approx(done / total)


@pytest.mark.parametrize(
    ("config", "reports"),
    [
        ({}, counter("epoch", [0])),
        ({"epochs": 3}, counter("loss", [0.5])),
        ({"epochs": "3"}, counter("epoch", [0])),
        ({"epochs": True}, counter("epoch", [0])),
        ({"epochs": 0}, counter("epoch", [0])),
        ({"epochs": 3}, [{"epoch": None}, {"epoch": float("nan")}, {"epoch": "first"}]),
        ({"trainer": {"epochs": 3}}, counter("epoch", [0])),
    ],
)
def test_progress_is_unknown_without_counter_or_end(
    config: dict[str, Any], reports: list[dict[str, Any]]
) -> None:
    assert after(config, reports) is None


def test_counter_that_reaches_its_end_counted_completed_units() -> None:
    progress = after(
        {"epochs": 3}, counter("epoch", [0, 1, 2, 3])
    )  # the first report was made before the training
    assert progress is not None
    assert progress.done == 3
    assert progress.left_s == 0


def test_report_number_tells_resumed_run_from_counter_from_1() -> None:
    from_0 = after({"epochs": 10}, counter("epoch", [5]), first_index=5, fresh=False)
    from_1 = after({"epochs": 10}, counter("epoch", [6]), first_index=5, fresh=False)
    assert from_0 is not None
    assert from_1 is not None
    assert from_0.done == from_1.done == 6


def test_decreasing_counter_is_replaced_by_next() -> None:
    reports = [{"step": step, "epoch": epoch} for epoch in range(2) for step in (10, 20, 30)]
    progress = after({"steps": 30, "epochs": 4}, reports)
    assert progress is not None
    assert (progress.unit, progress.done) == ("epoch", 2)


def test_counter_missing_in_some_reports_is_kept() -> None:
    progress = after({"max_steps": 100, "epochs": 4}, [{"step": 10}, {"epoch": 0}])
    assert progress is not None
    assert (progress.unit, progress.done) == ("step", 10)


def test_time_left_counts_from_start_of_fresh_run() -> None:
    meter = ProgressMeter({"epochs": 10})
    meter.attempt_began(100.0, is_fresh=True)
    meter.reported({"epoch": 0}, 0, 105.0)
    at_once, later, overdue = (meter.progress(now) for now in (105.0, 107.0, 1000.0))
    assert at_once is not None
    assert later is not None
    assert overdue is not None
    assert (at_once.left_s, later.left_s, overdue.left_s) == (45.0, 43.0, 0.0)


def test_resumed_attempt_needs_two_reports_and_keeps_progress() -> None:
    meter = ProgressMeter({"epochs": 10})
    meter.attempt_began(0.0, is_fresh=True)
    for epoch in range(4):
        meter.reported({"epoch": epoch}, epoch, epoch + 1.0)
    meter.attempt_ended()
    seen = [meter.progress(20.0)]
    meter.attempt_began(50.0, is_fresh=False)
    seen.append(meter.progress(50.0))
    for epoch in (2, 3):  # what came after the checkpoint comes again
        meter.reported({"epoch": epoch}, 4 + epoch, 50.0 + epoch)
        seen.append(meter.progress(50.0 + epoch))
    assert [(progress.done, progress.left_s) for progress in seen if progress is not None] == [
        (4, None),
        (4, None),
        (3, None),
        (4, 6.0),
    ]
