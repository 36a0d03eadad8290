"""`tune.track.log(mean_accuracy=…)`: the oldest form of `tune.report`."""

from __future__ import annotations

from syncline.tune.context import report


def log(**metrics: object) -> None:
    """Report metrics by keyword."""
    report(metrics)
