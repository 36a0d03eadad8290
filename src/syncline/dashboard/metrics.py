"""Running runs as Prometheus reads them, at `/metrics`.

What there is, is worked out when it is asked for; how many series a run can make is bounded, whatever it reports. Labels are foreign text,
which the client library escapes. Runs that have ended are not here: their figures are in their records.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from syncline import runs
from syncline.dashboard.catalogue import Catalogue, Row
from syncline.dashboard.look.text import printable
from syncline.dashboard.trainings import goodput
from syncline.runs import Run
from syncline.runs.series import numbers

MOST_RUNS = 100
MOST_METRICS = 50
"""Metrics of one run; the first by name."""
MOST_WORKERS = 256
LONGEST_LABEL = 120
PROCESS_FIGURES = {
    "cpu_percent": ("syncline_worker_cpu_percent", "Processor time of a worker, in percent of one core"),
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
        self._opened: dict[tuple[int, str], Run] = {}

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
        followed = rows[:MOST_RUNS]
        self._opened = {row.key: run for row in followed if (run := self._read(row)) is not None}
        for row in followed:
            run = self._opened.get(row.key)
            if run is not None:
                figures.add(run, self._catalogue.storages[row.storage].path)
        yield from figures.families()

    def _read(self, row: Row) -> Run | None:
        """The run as of now; None where it cannot be read, or is over."""
        run = self._opened.get(row.key)
        try:
            if run is None:
                run = runs.open(self._catalogue.place_of(*row.key))
            else:
                run.refresh()
            return run if run.state == "running" else None
        except (ValueError, OSError):
            return None


class Figures:
    """Families of gauges, filled run by run."""

    def __init__(self) -> None:
        run = ["run", "storage"]
        self._state = GaugeMetricFamily("syncline_run_state", "1 for the state that a run is in", labels=[*run, "kind", "state"])
        self._reports = GaugeMetricFamily("syncline_run_reports", "Rounds of reports so far", labels=run)
        self._started = GaugeMetricFamily("syncline_run_started_seconds", "When it was last started, since the epoch", labels=run)
        self._workers = GaugeMetricFamily("syncline_run_workers", "Workers of the present attempt", labels=run)
        self._restarts = GaugeMetricFamily("syncline_run_restarts", "How often workers were started again", labels=run)
        self._checkpoints = GaugeMetricFamily("syncline_run_checkpoints", "Checkpoints that are kept", labels=run)
        self._goodput = GaugeMetricFamily("syncline_run_goodput_ratio", "Share of the time that made progress", labels=run)
        self._metric = GaugeMetricFamily("syncline_run_metric", "Last value of a metric that rank 0 reported", labels=[*run, "metric"])
        self._process = {name: GaugeMetricFamily(family, text, labels=[*run, "member"]) for name, (family, text) in PROCESS_FIGURES.items()}

    def families(self) -> Iterator[Metric]:
        """All of them."""
        yield from (self._state, self._reports, self._started, self._workers, self._restarts, self._checkpoints, self._goodput)
        yield self._metric
        yield from self._process.values()

    def add(self, run: Run, storage: str) -> None:
        """Take the figures of one run."""
        summary = run.summary
        labels = [_label(summary.name), _label(storage)]
        self._state.add_metric([*labels, _label(summary.kind), _label(summary.state)], 1)
        _add(self._reports, labels, summary.reports)
        _add(self._started, labels, summary.started)
        _add(self._workers, labels, summary.workers)
        _add(self._restarts, labels, max(0, summary.attempts - 1))
        _add(self._checkpoints, labels, summary.checkpoints)
        _add(self._goodput, labels, goodput(run))
        for name, value in sorted(numbers(summary.metrics))[:MOST_METRICS]:
            _add(self._metric, [*labels, _label(name)], value)
        for member, samples in list(run.samples.items())[:MOST_WORKERS]:
            usage = samples[-1].get("usage") if samples else None
            for figure, family in self._process.items():
                _add(family, [*labels, _label(member)], usage.get(figure) if isinstance(usage, dict) else None)


def _add(family: GaugeMetricFamily, labels: Sequence[str], value: object) -> None:
    """Add a figure, if it is one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    family.add_metric(labels, number)


def _label(text: object) -> str:
    return printable(text, LONGEST_LABEL)
