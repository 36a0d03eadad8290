"""Progress and remaining time of a run, computed from its record. Pure.

A training run: from the counters in rank 0's reports and their ends in the configuration, as
`runs.run_progress` describes. A search: from the number of ended trials.
"""

from __future__ import annotations

from collections.abc import Mapping

from syncline.dashboard.formatting import duration, number
from syncline.dashboard.search_trials import ENDED
from syncline.runs import Run
from syncline.runs.metric_series import Series
from syncline.runs.run_progress import COUNTED, Progress, ProgressMeter

MAX_REPORTS = 200
"""Reports of an attempt that are looked at; the first and the last one always are."""


def training_progress(run: Run, now: float) -> Progress | None:
    """Return the progress of a training run; None if it is unknown."""
    config, attempts = run.config.get("train_config"), run.attempts
    if not isinstance(config, Mapping) or not attempts:
        return None
    latest = attempts[-1]
    first = latest.first_report or 0
    meter = ProgressMeter(config)
    meter.attempt_began(latest.began, is_fresh=first == 0)
    for index, time_s, metrics in _reports(run.series, first):
        meter.reported(metrics, index, time_s)
    if run.state != "running" or latest.ended is not None:
        meter.attempt_ended()
    return meter.progress(now)


def search_progress(
    counts: Mapping[str, int], total: int | None, started: float | None, now: float
) -> Progress | None:
    """Return the progress of a running search; None if the number of its trials is unknown.

    Args:
        counts: Number of trials by status.
        total: Number of trials at the end, if known.
        started: Start of the search in seconds since the epoch.
        now: Seconds since the epoch.
    """
    if not total:
        return None
    ended = sum(counts.get(status, 0) for status in ENDED)
    left_s = None
    if ended and started is not None and now > started:
        left_s = (total - ended) * (now - started) / ended
    return Progress(done=ended, total=max(total, ended), unit="trial", left_s=left_s)


def progress_text(progress: Progress) -> str:
    """Return the progress in words: "epoch 12 of 50, about 3 min 20 s left"."""
    parts = [f"{100 * progress.share:.0f} %"]
    if progress.unit:
        parts.append(f"{progress.unit} {_short(progress.done)} of {_short(progress.total)}")
    if progress.left_s is not None and progress.share < 1:
        parts.append(f"about {duration(progress.left_s)} left")
    return " · ".join(parts)


def _reports(series: Series, first: int) -> list[tuple[int, float, dict[str, float]]]:
    """Return (number, time, counters) of up to `MAX_REPORTS` reports of rank 0 from `first` on."""
    found: dict[int, tuple[float, dict[str, float]]] = {}
    for name in COUNTED:
        points = series.points(name, "0")
        values: list[float] = points.values.tolist()
        if all(map(float.is_integer, values)):  # curves hold all numbers as floats
            values = list(map(int, values))
        for iteration, time_s, value in zip(
            points.iterations.tolist(), points.times.tolist(), values, strict=True
        ):
            if iteration >= first:
                found.setdefault(int(iteration), (time_s, {}))[1][name] = value
    numbers = sorted(found)
    stride = max(1, -(-len(numbers) // MAX_REPORTS))
    return [(index, *found[index]) for index in sorted({*numbers[::stride], *numbers[-1:]})]


def _short(value: float) -> str:
    """Format a counter; whole numbers completely."""
    return number(int(value)) if float(value).is_integer() else f"{value:.1f}"
