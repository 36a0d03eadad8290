"""Publishes the metrics of user code of this process to its program, and collects those of all.

A thread, started by the first change of a value, puts the values into the engine's key values
`DELAY_S` after a change; so does the end of a task or call, because its worker may be killed next.
Counters and histograms of all processes are summed and survive their process; gauges have the label
`worker_id` and end `GAUGE_AGE_S` after their process.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterable

from syncline.core import engine as engines
from syncline.core.engine import Engine
from syncline.core.message import Message
from syncline.core.metrics_text import Family, HistogramValue, Tags, UserMetric, metrics_text

DELAY_S = 0.1
"""Seconds between a change and its publication; further changes go with it."""
BEAT_S = 10.0
"""Seconds after which unchanged values are published again, to show that their process lives."""
GAUGE_AGE_S = 35.0
CHEAP_S = 0.005
"""CPU time up to which each call that changed values publishes them at its end."""
SHARE = 0.05
"""Share of a worker's time that publishing may take at the end of calls, if there are many series.
"""


def _namespace(job_id: str) -> bytes:
    """Return the namespace of a program's values: on a cluster, values outlive their program."""
    return f"syncline-metrics-{job_id}".encode()


def forget(engine: Engine) -> None:
    """Delete the values of the program, at its end."""
    namespace = _namespace(engine.runtime_info().job_id)
    for key in engine.key_values.keys(b"", namespace):
        engine.key_values.delete(key, namespace)


class Published(Message):
    """Values of one process."""

    worker_id: str
    time: float
    """Seconds since the epoch."""
    metrics: tuple[UserMetric, ...]


class Publisher:
    """The thread of this process.

    Args:
        collect: Returns the metrics that have values.
    """

    def __init__(self, collect: Callable[[], tuple[UserMetric, ...]]) -> None:
        self._collect = collect
        self.reset()

    def reset(self) -> None:
        """Discard the thread, in a forked child."""
        if self.flush in engines.result_hooks:
            engines.result_hooks.remove(self.flush)
        self._changed = threading.Event()
        self._is_unpublished = False
        self._next_flush = 0.0  # time of the monotonic clock
        self._is_stopped = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def on_change(self) -> None:
        """Record that a value changed; the thread starts with the first one."""
        self._is_unpublished = True
        if not self._changed.is_set() and not self._is_stopped:
            self._changed.set()
            if self._thread is None:
                self._start()

    def stop(self) -> None:
        """Publish no more, because another part of this process reports the metrics."""
        self._is_stopped = True

    def publish(self, engine: Engine) -> None:
        """Publish the values of this process now."""
        self._is_unpublished = False
        values = () if self._is_stopped else self._collect()
        if values:
            info = engine.runtime_info()
            published = Published(worker_id=info.worker_id, time=time.time(), metrics=values)
            data = pickle.dumps(published)
            engine.key_values.put(info.worker_id.encode(), data, _namespace(info.job_id))

    def flush(self) -> None:
        """Publish the values at the end of a call; if that is expensive, not after each."""
        engine, started = engines.current, time.thread_time()
        if not self._is_unpublished or engine is None or time.monotonic() < self._next_flush:
            return
        try:
            self.publish(engine)
        except Exception:  # the thread tries again
            self._is_unpublished = True
        cost = time.thread_time() - started
        self._next_flush = time.monotonic() + cost / SHARE if cost > CHEAP_S else 0.0

    def families(self, engine: Engine) -> list[Family]:
        """Return the metrics of all processes of the engine, with the latest values of this one."""
        self.publish(engine)
        values, namespace = engine.key_values, _namespace(engine.runtime_info().job_id)
        found = [values.get(key, namespace) for key in values.keys(b"", namespace)]
        return merged((pickle.loads(data) for data in found if data is not None), time.time())

    def text(self, engine: Engine) -> str:
        """Return the metrics of all processes of the engine in the Prometheus format."""
        return metrics_text(self.families(engine))

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="syncline-metrics", daemon=True
                )
                self._thread.start()
                engines.result_hooks.append(self.flush)

    def _run(self) -> None:
        while not self._is_stopped:
            self._changed.wait(BEAT_S)
            time.sleep(DELAY_S)
            self._changed.clear()
            engine = engines.current
            if engine is None:  # the values wait for `init`
                continue
            try:
                self.publish(engine)
            except Exception:  # the engine ends
                continue


class _Sum:
    """A metric of all processes."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.values: dict[Tags, float | HistogramValue] = {}


def merged(published: Iterable[Published], now: float) -> list[Family]:
    """Return the metrics of several processes together; of two kinds of one name, the first wins.

    Pure.
    """
    sums: dict[str, _Sum] = {}
    for process in sorted(published, key=lambda each: each.time):
        is_fresh = now - process.time < GAUGE_AGE_S
        for metric in process.metrics:
            if metric.kind == "gauge" and not is_fresh:
                continue
            family = Family(name=metric.name, kind=metric.kind, help=metric.description)
            total = sums.setdefault(metric.name, _Sum(family))
            if total.family.kind == metric.kind:
                own = (("worker_id", process.worker_id),) if metric.kind == "gauge" else ()
                for tags, value in metric.series:
                    _add(total.values, (*tags, *own), value)
    for total in sums.values():
        total.family.series.extend(total.values.items())
    return [sums[name].family for name in sorted(sums)]


def _add(
    values: dict[Tags, float | HistogramValue], tags: Tags, value: float | HistogramValue
) -> None:
    known = values.get(tags)
    if isinstance(value, HistogramValue):
        if isinstance(known, HistogramValue):
            if known.bounds != value.bounds:  # the process has other code
                return
            counts = tuple(a + b for a, b in zip(known.counts, value.counts, strict=True))
            value = HistogramValue(value.bounds, counts, known.total + value.total)
        values[tags] = value
    elif not isinstance(known, HistogramValue):
        values[tags] = value if known is None else known + value
