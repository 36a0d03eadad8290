"""Index of all runs below the storage paths: listed, summarized, filtered, sorted and paged.

Listing costs two system calls per run; a summary reads the record and costs a thousand times as
much. Therefore the list is available first, the runs on a visitor's page are summarized next, and a
background thread summarizes the others, the newest first. The summary of an ended run is kept until
the run is restarted; summaries of running runs are refreshed. Independent of the web framework.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any
from urllib.parse import urlencode

from syncline.runs.json_values import Record
from syncline.runs.run_list import RunSummary, list_run_names, summarize_run, unreadable_summary
from syncline.runs.run_storage import StorageDirectory, checked_file_name

PAGE_ROWS = 50
FRESH_S = 1.5
"""Seconds for which the summary of a running run is valid."""
PATIENCE_S = 15.0
"""Seconds for which the summary of an unreadable run is valid; it may be partially written."""
COST_FACTOR = 20.0
"""A summary is valid for this multiple of the time that it took, in addition; this bounds the share
of time that one record can consume.
"""
PAUSE_S = 3.0
"""Seconds between two listings of the storage paths."""
IDLE_S = 60.0
"""Seconds without a visitor after which listing stops."""
SHOWN_METRICS = 3
ENDED_TRIALS = frozenset({"TERMINATED", "ERROR"})
SORTS = ("name", "kind", "state", "started", "duration", "reports", "workers", "storage")

Key = tuple[int, str]

log = logging.getLogger("syncline.dashboard")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run in the index."""

    storage: int
    """Number of the storage path."""
    directory: str
    """Name of the run directory."""
    listed: float
    """Modification time of `run.json`, in seconds since the epoch."""
    summary: RunSummary | None = None
    """Summary; None until the record was read."""
    read_at: float = 0.0
    """Time of the summary."""
    cost_s: float = 0.0
    """Seconds that the summary took."""
    search_text: str = ""
    """Searchable text in lower case."""

    @property
    def key(self) -> Key:
        """Unique key of the run."""
        return self.storage, self.directory

    @property
    def started(self) -> float:
        """Time of the last start, as far as known."""
        started = self.summary.started if self.summary is not None else None
        return started if started is not None and math.isfinite(started) else self.listed

    @property
    def duration_s(self) -> float | None:
        """Seconds from the start to the end, or to the last activity."""
        run = self.summary
        if run is None or run.started is None:
            return None
        end = run.ended if run.ended is not None else run.last_activity
        return max(0.0, end - run.started) if end is not None else None

    def is_due(self, now: float) -> bool:
        """Return True if the summary is missing or outdated."""
        if self.summary is None:
            return True
        age_s = now - self.read_at - COST_FACTOR * self.cost_s
        return (
            age_s > FRESH_S
            if self.summary.state == "running"
            else self.summary.state == "unreadable" and age_s > PATIENCE_S
        )


@dataclass(frozen=True, kw_only=True)
class Query:
    """Filter, order and page of the list, as in the URL parameters of the same names."""

    q: str = ""
    """Words that must all occur in a run's name, kind, state, host, error or metrics."""
    state: str = ""
    """State of the runs; all states if empty."""
    kind: str = ""
    """Kind of the runs; all kinds if empty."""
    sort: str = "started"
    """Sort key, one of `SORTS`."""
    descending: bool = True
    """Sort in descending order."""
    page: int = 0
    """Page number, from 0."""

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Query:
        """Parse URL parameters; ignore invalid ones."""
        sort = parameters.get("sort", "")
        descending = sort.startswith("-") or not sort
        sort = sort.removeprefix("-")
        number = parameters.get("page", "")
        return cls(
            q=parameters.get("q", "")[:200],
            state=parameters.get("state", "")[:40],
            kind=parameters.get("kind", "")[:40],
            sort=sort if sort in SORTS else "started",
            descending=descending if sort in SORTS else True,
            page=max(0, int(number) - 1)
            if number.isascii() and number.isdigit() and len(number) < 7
            else 0,
        )

    def address(self) -> str:
        """Return the URL parameters of this query; empty for the default query."""
        sort = (
            ""
            if (self.sort, self.descending) == ("started", True)
            else f"{'-' * self.descending}{self.sort}"
        )
        given = {
            "q": self.q,
            "state": self.state,
            "kind": self.kind,
            "sort": sort,
            "page": str(self.page + 1) if self.page else "",
        }
        return urlencode({name: value for name, value in given.items() if value})


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Result of a query."""

    rows: Sequence[Row]
    """Rows of the page."""
    page: int
    """Number of the page: at most the last one."""
    matching: int
    """Number of matching runs."""
    known: int
    """Number of all runs."""
    unread: int
    """Number of runs without a summary; they may match later."""
    states: Sequence[str]
    """States of all runs."""
    kinds: Sequence[str]
    """Kinds of all runs."""
    problems: Sequence[str]
    """Messages about storage paths that cannot be listed."""


class RunIndex:
    """All runs below some storage paths. Thread-safe.

    Args:
        storages: Storage paths.
        clock: Returns seconds since the epoch.
        names: Lists a storage path, as `list_run_names`.
        summarize: Summarizes a run, as `summarize_run`.
    """

    def __init__(
        self,
        storages: Sequence[StorageDirectory],
        *,
        clock: Callable[[], float] = time.time,
        names: Callable[[StorageDirectory], list[tuple[str, float]]] = list_run_names,
        summarize: Callable[[StorageDirectory], RunSummary] = summarize_run,
    ) -> None:
        self.storages = tuple(storages)
        self._clock = clock
        self._names = names
        self._summarize = summarize
        self._lock = threading.Lock()
        self._rows: dict[Key, Row] = {}
        self._problems: list[str] = []
        self._looked_at = clock()
        self._listed = threading.Event()

    def refresh(self) -> None:
        """List the storage paths again. Blocks: call it in a thread."""
        listed: dict[Key, float] = {}
        problems = []
        for number, storage in enumerate(self.storages):
            try:
                listed |= {(number, name): modified for name, modified in self._names(storage)}
            except (OSError, ValueError) as error:
                problems.append(
                    f"Cannot list {storage.path} ({error}): correct its permissions, or start the "
                    "dashboard with another storage path."
                )
        with self._lock:
            # A restarted run counts as a new run.
            self._rows = {key: self._kept(key, modified) for key, modified in listed.items()}
            self._problems = problems
        self._listed.set()

    def _kept(self, key: Key, modified: float) -> Row:
        known = self._rows.get(key)
        if known is not None and known.listed == modified:
            return known
        return Row(storage=key[0], directory=key[1], listed=modified, search_text=key[1].lower())

    def select(self, query: Query) -> Selection:
        """Return the runs that match a query; wait for the first listing. Also marks the index as
        in use.
        """
        self._listed.wait(timeout=10.0)
        with self._lock:
            self._looked_at = self._clock()
            rows, problems = list(self._rows.values()), tuple(self._problems)
        found = ordered(filter_rows(rows, query), query)
        page = min(query.page, max(0, len(found) - 1) // PAGE_ROWS)
        summaries = [row.summary for row in rows if row.summary is not None]
        return Selection(
            rows=found[page * PAGE_ROWS : (page + 1) * PAGE_ROWS],
            page=page,
            matching=len(found),
            known=len(rows),
            unread=len(rows) - len(summaries),
            states=sorted({run.state for run in summaries}),
            kinds=sorted({run.kind for run in summaries}),
            problems=problems,
        )

    def select_fresh(self, query: Query) -> Selection:
        """Like `select`, with up-to-date summaries of the page's rows. Call it in a thread."""
        chosen = self.select(query)
        fresh = {row.key: row for row in self.read(chosen.rows)}
        return replace(
            chosen,
            rows=[fresh.get(row.key, row) for row in chosen.rows],
            unread=chosen.unread - len(fresh),
        )

    def running(self) -> list[Row]:
        """Return the runs that were running when last summarized."""
        with self._lock:
            self._looked_at = self._clock()
            return [
                row
                for row in self._rows.values()
                if row.summary is not None and row.summary.state == "running"
            ]

    def run_directory(self, storage: int, directory: str) -> StorageDirectory:
        """Return the directory of a run.

        Raises:
            LookupError: No storage path has this number.
            ValueError: The name is invalid or names a symbolic link.
        """
        if not 0 <= storage < len(self.storages):
            raise LookupError(f"This dashboard has no storage path number {storage}.")
        place = self.storages[storage].subdirectory(checked_file_name(directory))
        if place.local_path is not None and os.path.islink(place.local_path):
            raise ValueError(
                f"{directory!r} is a symbolic link. Links may lead anywhere, so they are not shown."
            )
        return place

    def read(self, rows: Iterable[Row]) -> list[Row]:
        """Summarize the rows that are due; return them."""
        return [self._read(row) for row in rows if row.is_due(self._clock())]

    def _read(self, row: Row) -> Row:
        began = time.monotonic()
        place = self.storages[row.storage].subdirectory(row.directory)
        try:
            summary = self._summarize(place)
        except Exception as error:  # one broken record must not hide the others
            log.exception("Cannot summarize the run in %r", row.directory)
            summary = unreadable_summary(place, f"The summary failed: {type(error).__name__}")
        cost_s = time.monotonic() - began
        fresh = replace(
            row,
            summary=summary,
            read_at=self._clock(),
            cost_s=cost_s,
            search_text=search_text(row.directory, summary),
        )
        with self._lock:
            known = self._rows.get(row.key)
            if known is not None and known.listed == row.listed:
                self._rows[row.key] = fresh
        return fresh

    def run_updates(self, stop: threading.Event) -> None:
        """List runs and summarize those that are due, the newest first, until `stop` is set. Runs
        in its own thread.
        """
        while not stop.is_set():
            began = time.monotonic()
            if self._clock() - self._looked_at < IDLE_S or not self._listed.is_set():
                self.refresh()
                self._catch_up(stop)
            # Slow listings (object stores) are repeated less often.
            stop.wait(max(PAUSE_S, min(60.0, 3 * (time.monotonic() - began))))

    def _catch_up(self, stop: threading.Event) -> None:
        with self._lock:
            rows = sorted(self._rows.values(), key=lambda row: row.listed, reverse=True)
        for row in rows:
            if stop.is_set():
                return
            if row.is_due(self._clock()):
                began = time.monotonic()
                self._read(row)
                # Leave most of the CPU to the pages.
                stop.wait(min(5.0, 2 * (time.monotonic() - began)))


def search_text(directory: str, run: RunSummary) -> str:
    """Return the searchable text of a run in lower case."""
    words = [
        directory,
        run.name,
        run.kind,
        run.state,
        run.host or "",
        run.cause,
        (run.error or "")[-2_000:],
        metrics_text(run.metrics, 50),
    ]
    return "\n".join(word[:4_000] for word in words).lower()


def filter_rows(rows: Sequence[Row], query: Query) -> Sequence[Row]:
    """Return the rows that match a query, in their order."""
    found = rows
    for word in query.q.lower().split():
        found = [row for row in found if word in row.search_text]
    if query.state:
        found = [
            row for row in found if row.summary is not None and row.summary.state == query.state
        ]
    if query.kind:
        found = [row for row in found if row.summary is not None and row.summary.kind == query.kind]
    return found


def ordered(rows: Sequence[Row], query: Query) -> list[Row]:
    """Return the rows in the order of a query (stable); rows without a value come last."""
    valued, unknown = [], []
    for row in rows:
        value = _sort_value(row, query.sort)
        if value is None:
            unknown.append(row)
        else:
            valued.append((value, row))
    valued.sort(key=itemgetter(0), reverse=query.descending)
    return [row for _, row in valued] + unknown


def _sort_value(row: Row, sort: str) -> Any:
    """Return the sort value of a row: of one type per sort key, None if unknown."""
    run = row.summary
    if sort == "started":
        return row.started
    if sort == "name":
        return (run.name if run is not None else row.directory).lower()
    if sort == "storage":
        return row.storage
    if run is None:
        return None
    return {
        "kind": run.kind,
        "state": run.state,
        "duration": row.duration_s,
        "reports": run.reports,
        "workers": run.workers,
    }[sort]


def progress_text(run: RunSummary) -> str:
    """Return the progress of a run: "12 of 50 trials", "340 reports", or "" for a dataset."""
    if run.kind == "data":
        return ""
    if run.trials is None:
        return f"{_short(run.reports)} report{'s'[: run.reports != 1]}"
    ended = sum(count for status, count in run.trials.items() if status in ENDED_TRIALS)
    expected = run.trials.get("expected")
    return (
        f"{_short(ended)} of {_short(expected)} trials"
        if expected is not None
        else f"{_short(ended)} trials"
    )


def metrics_text(metrics: Record, most: int = SHOWN_METRICS) -> str:
    """Return the first numbers of a report: "loss=0.3 accuracy=0.91"."""
    numbers = [
        (name, value)
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    shown = " ".join(f"{name}={_short(value)}" for name, value in numbers[:most])
    return f"{shown} …" if len(numbers) > most else shown


def _short(value: float) -> str:
    """Format a number in few digits; short integers completely."""
    try:
        return str(value) if isinstance(value, int) and abs(value) < 10**9 else f"{value:.4g}"
    except OverflowError:  # an int beyond the range of float
        return "huge"
