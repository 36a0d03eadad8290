"""Prometheus metrics of running runs, served at `/metrics`.

Values are computed per scrape, and the number of series per run is bounded. Labels are untrusted;
the client library escapes them. The label of a run is its directory, because names are not unique.
Ended runs are not exported: their values are in their records.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from syncline import runs
from syncline.dashboard.run_index import Key, Row, RunIndex
from syncline.dashboard.training_figures import goodput
from syncline.dashboard.widgets.formatting import printable
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
PROCESS_FIGURES = {
    "cpu_percent": ("syncline_worker_cpu_percent", "CPU time of a worker, in percent of one core"),
    "rss_bytes": ("syncline_worker_memory_bytes", "Resident memory of a worker"),
}


class RunMetrics:
    """Answers scrapes. Thread-safe."""

    def __init__(self, run_index: RunIndex) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(RunCollector(run_index))
        self._lock = threading.Lock()

    def text(self) -> tuple[bytes, str]:
        """Return the answer and its content type. Blocks: call it in a thread."""
        with self._lock:
            return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4


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
        yield from figures.families()

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
    """Families of gauges, filled run by run."""

    def __init__(self) -> None:
        run = ["run", "storage"]
        self._state = GaugeMetricFamily(
            "syncline_run_state", "1 for the current state of a run", labels=[*run, "kind", "state"]
        )
        self._reports = GaugeMetricFamily(
            "syncline_run_reports", "Rounds of reports so far", labels=run
        )
        self._started = GaugeMetricFamily(
            "syncline_run_started_seconds", "Time of the last start, since the epoch", labels=run
        )
        self._workers = GaugeMetricFamily(
            "syncline_run_workers", "Workers of the current attempt", labels=run
        )
        self._restarts = GaugeMetricFamily(
            "syncline_run_restarts", "Number of restarts of the workers", labels=run
        )
        self._checkpoints = GaugeMetricFamily(
            "syncline_run_checkpoints", "Checkpoints that are kept", labels=run
        )
        self._goodput = GaugeMetricFamily(
            "syncline_run_goodput_ratio", "Share of time spent on useful training", labels=run
        )
        self._metric = GaugeMetricFamily(
            "syncline_run_metric",
            "Last value of a metric that rank 0 reported",
            labels=[*run, "metric"],
        )
        self._process = {
            name: GaugeMetricFamily(family, text, labels=[*run, "member"])
            for name, (family, text) in PROCESS_FIGURES.items()
        }

    def families(self) -> Iterator[Metric]:
        """Yield all families."""
        yield from (
            self._state,
            self._reports,
            self._started,
            self._workers,
            self._restarts,
            self._checkpoints,
            self._goodput,
        )
        yield self._metric
        yield from self._process.values()

    def add(self, run: Run, directory: str, storage: str) -> None:
        """Add the values of one run."""
        summary = run.summary
        labels = [_label(directory), _label(storage)]
        self._state.add_metric([*labels, _label(summary.kind), _label(summary.state)], 1)
        _add(self._reports, labels, summary.reports)
        _add(self._started, labels, summary.started)
        _add(self._workers, labels, summary.workers)
        _add(self._restarts, labels, max(0, summary.attempts - 1))
        _add(self._checkpoints, labels, summary.checkpoints)
        _add(self._goodput, labels, goodput(run))
        for name, value in _by_label(sorted(numbers(summary.metrics))).items():
            _add(self._metric, [*labels, name], value)
        for member, samples in _by_label(
            itertools.islice(run.samples.items(), MAX_WORKERS), MAX_WORKERS
        ).items():
            usage = samples[-1].get("usage") if samples else None
            for figure, family in self._process.items():
                _add(
                    family,
                    [*labels, member],
                    usage.get(figure) if isinstance(usage, dict) else None,
                )


def _add(family: GaugeMetricFamily, labels: Sequence[str], value: object) -> None:
    """Add a value if it is a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    family.add_metric(labels, number)


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
