"""Running runs as Prometheus reads them, at `/metrics`.

What there is, is worked out when it is asked for; how many series a run can make is bounded,
whatever it reports. Labels are foreign text, which the client library escapes. A run is told by its
directory, as a name can be that of several. Runs that have ended are not here: their figures are in
their records.
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
from syncline.dashboard.catalogue import Catalogue, Key, Row
from syncline.dashboard.look.text import printable
from syncline.dashboard.trainings import goodput
from syncline.runs import Run
from syncline.runs.series import numbers

T = TypeVar("T")

log = logging.getLogger("syncline.dashboard")

MOST_RUNS = 100
MOST_METRICS = 50
"""Metrics of one run; the first by name."""
MOST_WORKERS = 256
LONGEST_LABEL = 120
MOST_VALUES = 1_000_000
"""Values of the record of one run; one with more is none that syncline has written, and is not told
of.
"""
MOST_VALUES_TOGETHER = 10_000_000
"""Of all runs that are told of, which stay in memory between scrapes."""
PROCESS_FIGURES = {
    "cpu_percent": (
        "syncline_worker_cpu_percent",
        "Processor time of a worker, in percent of one core",
    ),
    "rss_bytes": ("syncline_worker_memory_bytes", "Resident memory of a worker"),
}


class RunMetrics:
    """Answers scrapes. May be used from several threads."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(RunCollector(catalogue))
        self._lock = threading.Lock()

    def text(self) -> tuple[bytes, str]:
        """The answer and its content type. Reads records: for a thread."""
        with self._lock:
            return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4


class RunCollector(Collector):
    """The figures of the runs that are running. For one thread at a time."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._opened: dict[Key, Run] = {}
        self._left_out: dict[Key, float] = {}  # by when they were listed

    def describe(self) -> Iterable[Metric]:
        """Nothing ahead of time: the names of all figures are known only with the runs."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All figures, as of now."""
        rows = sorted(self._catalogue.running(), key=lambda row: row.listed, reverse=True)
        count = GaugeMetricFamily("syncline_runs_running", "Runs that are running")
        count.add_metric([], len(rows))
        yield count
        figures = Figures()
        opened, room = {}, MOST_VALUES_TOGETHER
        for row in rows[:MOST_RUNS]:
            run = self._read(row) if room > 0 else None
            if run is None:
                continue
            try:
                figures.add(run, row.directory, self._catalogue.storages[row.storage].path)
            except Exception:  # whatever one record makes go wrong, the others are told of
                log.exception("the figures of the run in %r cannot be told", row.directory)
                continue
            opened[row.key] = run
            room -= run.kept_values
        self._opened = opened
        self._left_out = {
            row.key: row.listed for row in rows if self._left_out.get(row.key) == row.listed
        }
        yield from figures.families()

    def _read(self, row: Row) -> Run | None:
        """The run as of now; None where it cannot be read, is over, or is larger than any."""
        if self._left_out.get(row.key) == row.listed:
            return None
        run = self._opened.get(row.key)
        try:
            if run is None:
                run = runs.open(self._catalogue.place_of(*row.key))
            else:
                run.refresh()
            if run.kept_values > MOST_VALUES:
                self._left_out[row.key] = row.listed
                return None
            return run if run.state == "running" else None
        except Exception as error:
            log.debug("the run in %r cannot be read: %s", row.directory, error)
            return None


class Figures:
    """Families of gauges, filled run by run."""

    def __init__(self) -> None:
        run = ["run", "storage"]
        self._state = GaugeMetricFamily(
            "syncline_run_state", "1 for the state that a run is in", labels=[*run, "kind", "state"]
        )
        self._reports = GaugeMetricFamily(
            "syncline_run_reports", "Rounds of reports so far", labels=run
        )
        self._started = GaugeMetricFamily(
            "syncline_run_started_seconds", "When it was last started, since the epoch", labels=run
        )
        self._workers = GaugeMetricFamily(
            "syncline_run_workers", "Workers of the present attempt", labels=run
        )
        self._restarts = GaugeMetricFamily(
            "syncline_run_restarts", "How often workers were started again", labels=run
        )
        self._checkpoints = GaugeMetricFamily(
            "syncline_run_checkpoints", "Checkpoints that are kept", labels=run
        )
        self._goodput = GaugeMetricFamily(
            "syncline_run_goodput_ratio", "Share of the time that made progress", labels=run
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
        """All of them."""
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
        """Take the figures of one run."""
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
            itertools.islice(run.samples.items(), MOST_WORKERS), MOST_WORKERS
        ).items():
            usage = samples[-1].get("usage") if samples else None
            for figure, family in self._process.items():
                _add(
                    family,
                    [*labels, member],
                    usage.get(figure) if isinstance(usage, dict) else None,
                )


def _add(family: GaugeMetricFamily, labels: Sequence[str], value: object) -> None:
    """Add a figure, if it is one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    family.add_metric(labels, number)


def _by_label(named: Iterable[tuple[str, T]], most: int = MOST_METRICS) -> dict[str, T]:
    """By what they are called as labels, the first of each: no two series are the same."""
    found: dict[str, T] = {}
    for name, value in named:
        if len(found) == most:
            break
        found.setdefault(_label(name), value)
    return found


def _label(text: object) -> str:
    return printable(text, LONGEST_LABEL)
