"""Prometheus metrics of running runs, served at `/metrics`, with those of `serving_metrics` and
`program_metrics`.

Values are computed per scrape, and the number of series per run is bounded. Labels are untrusted;
the client library escapes them. The label of a run is its directory, because names are not unique.
Ended runs are not exported: their values are in their records.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from syncline import runs
from syncline.dashboard.formatting import printable
from syncline.dashboard.program_metrics import program_texts
from syncline.dashboard.run_index import RunIndex
from syncline.dashboard.run_query import Key, Row
from syncline.dashboard.serving_metrics import merged, serving_texts
from syncline.dashboard.training_figures import goodput
from syncline.runs import Run
from syncline.runs.metric_series import numbers

T = TypeVar("T")

log = logging.getLogger("syncline.dashboard")

MAX_RUNS = 100
MAX_METRICS = 50
"""Maximum metrics of one run, the first by name."""
MAX_WORKERS = 256
MAX_LABEL_LENGTH = 120
MAX_VALUES = 1_000_000
"""Maximum JSON values in the record of one run; larger records are skipped, as syncline does not
write them.
"""
MAX_VALUES_TOGETHER = 10_000_000
"""Maximum values of all exported runs; they stay in memory between scrapes."""
RUN_LABELS = ("run", "storage")
FAMILIES = {
    # key: (name, description, further labels)
    "state": ("syncline_run_state", "1 for the current state of a run", ("kind", "state")),
    "reports": ("syncline_run_reports", "Rounds of reports so far", ()),
    "started": ("syncline_run_started_seconds", "Time of the last start, since the epoch", ()),
    "workers": ("syncline_run_workers", "Workers of the current attempt", ()),
    "restarts": ("syncline_run_restarts", "Number of restarts of the workers", ()),
    "checkpoints": ("syncline_run_checkpoints", "Checkpoints that are kept", ()),
    "goodput": ("syncline_run_goodput_ratio", "Share of time spent on useful training", ()),
    "metric": ("syncline_run_metric", "Last value of a metric that rank 0 reported", ("metric",)),
    "cpu_percent": (
        "syncline_worker_cpu_percent",
        "CPU time of a worker, in percent of one core",
        ("member",),
    ),
    "rss_bytes": ("syncline_worker_memory_bytes", "Resident memory of a worker", ("member",)),
}


class RunMetrics:
    """Answers scrapes. Thread-safe."""

    def __init__(self, run_index: RunIndex) -> None:
        self._run_index = run_index
        self._registry = CollectorRegistry()
        self._registry.register(RunCollector(run_index))
        self._lock = threading.Lock()

    def text(self) -> tuple[bytes, str]:
        """Return the answer and its content type. Blocks: call it in a thread."""
        with self._lock:
            others = merged(serving_texts(self._run_index), program_texts()).encode()
            return generate_latest(self._registry) + others, CONTENT_TYPE_PLAIN_0_0_4


class RunCollector(Collector):
    """Collector of the running runs. For one thread at a time."""

    def __init__(self, run_index: RunIndex) -> None:
        self._run_index = run_index
        self._opened: dict[Key, Run] = {}
        self._left_out: dict[Key, float] = {}  # key -> time of listing

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the metrics are only known with the runs."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their current values."""
        rows = sorted(self._run_index.running(), key=lambda row: row.listed, reverse=True)
        count = GaugeMetricFamily("syncline_runs_running", "Runs that are running")
        count.add_metric([], len(rows))
        yield count
        figures = Figures()
        opened, room = {}, MAX_VALUES_TOGETHER
        for row in rows[:MAX_RUNS]:
            run = self._read(row) if room > 0 else None
            if run is None:
                continue
            try:
                figures.add(run, row.directory, self._run_index.storages[row.storage].path)
            except Exception:  # one broken record must not hide the others
                log.exception("Cannot export the metrics of the run in %r", row.directory)
                continue
            opened[row.key] = run
            room -= run.kept_values
        self._opened = opened
        self._left_out = {
            row.key: row.listed for row in rows if self._left_out.get(row.key) == row.listed
        }
        yield from figures.families.values()

    def _read(self, row: Row) -> Run | None:
        """Return the refreshed run; None if it is unreadable, ended, or too large."""
        if self._left_out.get(row.key) == row.listed:
            return None
        run = self._opened.get(row.key)
        try:
            if run is None:
                run = runs.open(self._run_index.run_directory(*row.key))
            else:
                run.refresh()
            if run.kept_values > MAX_VALUES:
                self._left_out[row.key] = row.listed
                return None
            return run if run.state == "running" else None
        except Exception as error:
            log.debug("Cannot read the run in %r: %s", row.directory, error)
            return None


class Figures:
    """Families of gauges by key, filled run by run."""

    def __init__(self) -> None:
        self.families = {
            key: GaugeMetricFamily(name, text, labels=[*RUN_LABELS, *labels])
            for key, (name, text, labels) in FAMILIES.items()
        }

    def add(self, run: Run, directory: str, storage: str) -> None:
        """Add the values of one run."""
        place = [_label(directory), _label(storage)]

        def add(key: str, value: object, *labels: str) -> None:
            """Add a value if it is a number."""
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            self.families[key].add_metric([*place, *labels], number)

        summary = run.summary
        add("state", 1, _label(summary.kind), _label(summary.state))
        add("reports", summary.reports)
        add("started", summary.started)
        add("workers", summary.workers)
        add("restarts", max(0, summary.attempts - 1))
        add("checkpoints", summary.checkpoints)
        add("goodput", goodput(run))
        for name, value in _by_label(sorted(numbers(summary.metrics))).items():
            add("metric", value, name)
        workers = itertools.islice(run.samples.items(), MAX_WORKERS)
        for member, samples in _by_label(workers, MAX_WORKERS).items():
            usage = samples[-1].get("usage") if samples else None
            if isinstance(usage, dict):
                for key in ("cpu_percent", "rss_bytes"):
                    add(key, usage.get(key), member)


def _by_label(named: Iterable[tuple[str, T]], most: int = MAX_METRICS) -> dict[str, T]:
    """Return the values by label; the first of equal labels wins."""
    found: dict[str, T] = {}
    for name, value in named:
        if len(found) == most:
            break
        found.setdefault(_label(name), value)
    return found


def _label(text: object) -> str:
    return printable(text, MAX_LABEL_LENGTH)
