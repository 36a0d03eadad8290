"""Metrics of user code: `Counter`, `Gauge` and `Histogram`, as in `util.metrics`.

Values of a replica are reported to Prometheus with the labels application, deployment and replica.
"""

from __future__ import annotations

from syncline.core.metrics import Counter, Gauge, Histogram, publisher
from syncline.core.metrics import collect as values_of_process
from syncline.core.metrics_text import UserMetric

__all__ = ["Counter", "Gauge", "Histogram"]


def collect() -> tuple[UserMetric, ...]:
    """Return the metrics of this process, which the caller reports from now on."""
    publisher.stop()
    return values_of_process()
