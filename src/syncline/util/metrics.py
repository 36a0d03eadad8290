"""Metrics of user code: `Counter`, `Gauge` and `Histogram`, in the driver, tasks, actors, workers.

    requests = Counter("requests", "Requests so far", tag_keys=("model",))
    requests.inc(tags={"model": "a"})

Values reach the program within a tenth of a second. `syncline dashboard` serves those of all
programs of this machine at `/metrics` and shows them on the page of their program; `text` returns
them in the program. Counters and histograms are summed over processes; a gauge has the label
`worker_id`. Metrics of replicas of serve are in the metrics of serve.
"""

from __future__ import annotations

from syncline.core import engine as engines
from syncline.core import metrics_publisher
from syncline.core.lifecycle import ensure_engine, shutdown_hooks
from syncline.core.metrics import Counter, Gauge, Histogram, Metric, publisher

__all__ = ["Counter", "Gauge", "Histogram", "Metric", "text"]


def text() -> str:
    """Return the metrics of all processes of this engine in the Prometheus format."""
    return publisher.text(ensure_engine())


def _forget_values() -> None:
    engine = engines.current
    if engine is not None and engine.address != "local":
        metrics_publisher.forget(engine)


shutdown_hooks.append(_forget_values)
