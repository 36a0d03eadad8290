"""The runs that there are: listed, summed up, searched, sorted and paged. No web framework here.

Listing costs two calls to the system for each run; summing one up reads its record, a thousand
times as much. So the list is there at once, what a visitor sees is summed up first, and a thread
does the others, the newest first, and keeps up with what changes. A summary is kept until its run
is started again; those of running runs are made anew.
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

from syncline.runs.finding import RunSummary, run_names, summarise, unreadable
from syncline.runs.places import Place, checked_part

PAGE_ROWS = 50
FRESH_S = 1.5
"""So long the summary of a running run is good."""
PATIENCE_S = 15.0
"""So long the summary of a run that could not be read is good: it may be being written."""
COST_FACTOR = 20.0
"""A summary is good for so many times as long as it took to make it, besides: no record takes more
than this part of the time.
"""
PAUSE_S = 3.0
"""Between two looks at the directories."""
IDLE_S = 60.0
"""After so long without a visitor the directories are left alone."""
SHOWN_METRICS = 3
ENDED_TRIALS = frozenset({"TERMINATED", "ERROR"})
SORTS = ("name", "kind", "state", "started", "duration", "reports", "workers", "storage")

Key = tuple[int, str]

log = logging.getLogger("syncline.dashboard")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run in the list."""

    storage: int
    """Number of its storage path."""
    directory: str
    """Its directory's name."""
    listed: float
    """When its `run.json` was written, in seconds since the epoch."""
    summary: RunSummary | None = None
    """None until it was summed up."""
    read_at: float = 0.0
    """When that was."""
    cost_s: float = 0.0
    """How long it took."""
    haystack: str = ""
    """What the search looks through, in lower case."""

    @property
    def key(self) -> Key:
        """Tells it from all others."""
        return self.storage, self.directory

    @property
    def started(self) -> float:
        """When it was started last, as far as is known."""
        started = self.summary.started if self.summary is not None else None
        return started if started is not None and math.isfinite(started) else self.listed

    @property
    def duration_s(self) -> float | None:
        """From its start to its end, or to when it last wrote something."""
        run = self.summary
        if run is None or run.started is None:
            return None
        end = run.ended if run.ended is not None else run.last_activity
        return max(0.0, end - run.started) if end is not None else None

    def is_due(self, now: float) -> bool:
        """Whether it is to be summed up, again or for the first time."""
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
    """What a visitor asks to see; in addresses under these names."""

    q: str = ""
    """Words that all occur in a run's name, kind, state, host, error or metrics."""
    state: str = ""
    """Only runs in this state."""
    kind: str = ""
    """Only runs of this kind."""
    sort: str = "started"
    """One of `SORTS`."""
    descending: bool = True
    """Whether the largest come first."""
    page: int = 0
    """From 0."""

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Query:
        """From the parameters of an address; what makes no sense is left out."""
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
        """The parameters of the address that asks the same; empty for the list as it is at
        first.
        """
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
    """The answer to a query."""

    rows: Sequence[Row]
    """Of the page that is asked for."""
    page: int
    """Which page that is: the last where there are fewer than asked for."""
    matching: int
    """Runs that match."""
    known: int
    """Runs that there are."""
    unread: int
    """Runs not summed up yet: where the query needs that, more may match."""
    states: Sequence[str]
    """States that occur."""
    kinds: Sequence[str]
    """Kinds that occur."""
    problems: Sequence[str]
    """Storage paths that cannot be listed, and why."""


class Catalogue:
    """All runs below some storage paths. May be used from several threads.

    Args:
        storages: The storage paths.
        clock: Seconds since the epoch.
        names: Lists a storage path, as `finding.run_names`.
        summed_up: Sums up a run, as `finding.summarise`.
    """

    def __init__(
        self,
        storages: Sequence[Place],
        *,
        clock: Callable[[], float] = time.time,
        names: Callable[[Place], list[tuple[str, float]]] = run_names,
        summed_up: Callable[[Place], RunSummary] = summarise,
    ) -> None:
        self.storages = tuple(storages)
        self._clock = clock
        self._names = names
        self._summed_up = summed_up
        self._lock = threading.Lock()
        self._rows: dict[Key, Row] = {}
        self._problems: list[str] = []
        self._looked_at = clock()
        self._listed = threading.Event()

    def refresh(self) -> None:
        """List the storage paths again. Takes a while: call it in a thread."""
        listed: dict[Key, float] = {}
        problems = []
        for number, storage in enumerate(self.storages):
            try:
                listed |= {(number, name): modified for name, modified in self._names(storage)}
            except (OSError, ValueError) as error:
                problems.append(
                    f"{storage.path} cannot be read ({error}): correct its permissions, or start with another storage path"
                )
        with self._lock:
            # A run that was started again is another run.
            self._rows = {key: self._kept(key, modified) for key, modified in listed.items()}
            self._problems = problems
        self._listed.set()

    def _kept(self, key: Key, modified: float) -> Row:
        known = self._rows.get(key)
        if known is not None and known.listed == modified:
            return known
        return Row(storage=key[0], directory=key[1], listed=modified, haystack=key[1].lower())

    def select(self, query: Query) -> Selection:
        """The runs that a query asks for, and that somebody looks at them. Waits for the first
        listing.
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

    def look(self, query: Query) -> Selection:
        """As `select`, with every run that is shown summed up as of now. Call it in a thread."""
        chosen = self.select(query)
        fresh = {row.key: row for row in self.read(chosen.rows)}
        return replace(
            chosen,
            rows=[fresh.get(row.key, row) for row in chosen.rows],
            unread=chosen.unread - len(fresh),
        )

    def running(self) -> list[Row]:
        """The runs that were running when last summed up."""
        with self._lock:
            self._looked_at = self._clock()
            return [
                row
                for row in self._rows.values()
                if row.summary is not None and row.summary.state == "running"
            ]

    def place_of(self, storage: int, directory: str) -> Place:
        """Where a run lies.

        Raises:
            LookupError: There is no storage path of that number. ValueError: It is no name of a
            directory in it, or that of a link, which may lead anywhere.
        """
        if not 0 <= storage < len(self.storages):
            raise LookupError(f"this dashboard has no storage path number {storage}")
        place = self.storages[storage].below(checked_part(directory))
        if place.local_path is not None and os.path.islink(place.local_path):
            raise ValueError(
                f"{directory!r} is a symbolic link, which may lead anywhere, so nothing below it is shown"
            )
        return place

    def read(self, rows: Iterable[Row]) -> list[Row]:
        """Sum up those of the rows that are due; them, as they are then."""
        done = []
        for row in rows:
            if row.is_due(self._clock()):
                done.append(self._read(row))
        return done

    def _read(self, row: Row) -> Row:
        began = time.monotonic()
        place = self.storages[row.storage].below(row.directory)
        try:
            summary = self._summed_up(place)
        except Exception as error:  # whatever one record makes go wrong, all others are shown
            log.exception("the run in %r could not be summed up", row.directory)
            summary = unreadable(place, f"it could not be summed up: {type(error).__name__}")
        cost_s = time.monotonic() - began
        fresh = replace(
            row,
            summary=summary,
            read_at=self._clock(),
            cost_s=cost_s,
            haystack=haystack(row.directory, summary),
        )
        with self._lock:
            known = self._rows.get(row.key)
            if known is not None and known.listed == row.listed:
                self._rows[row.key] = fresh
        return fresh

    def keep_up(self, stop: threading.Event) -> None:
        """Until `stop` is set: list what there is, and sum up what is due, the newest first. For a
        thread of its own.
        """
        while not stop.is_set():
            began = time.monotonic()
            if self._clock() - self._looked_at < IDLE_S or not self._listed.is_set():
                self.refresh()
                self._catch_up(stop)
            # Where listing takes long (a bucket), it is done less often.
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
                stop.wait(
                    min(5.0, 2 * (time.monotonic() - began))
                )  # pages have the processor most of the time


def haystack(directory: str, run: RunSummary) -> str:
    """What the search looks through."""
    words = [
        directory,
        run.name,
        run.kind,
        run.state,
        run.host or "",
        (run.error or "")[-2_000:],
        metrics_text(run.metrics, 50),
    ]
    return "\n".join(word[:4_000] for word in words).lower()


def filter_rows(rows: Sequence[Row], query: Query) -> Sequence[Row]:
    """The rows that a query asks for, in their order."""
    found = rows
    for word in query.q.lower().split():
        found = [row for row in found if word in row.haystack]
    if query.state:
        found = [
            row for row in found if row.summary is not None and row.summary.state == query.state
        ]
    if query.kind:
        found = [row for row in found if row.summary is not None and row.summary.kind == query.kind]
    return found


def ordered(rows: Sequence[Row], query: Query) -> list[Row]:
    """The rows as a query sorts them; of equal ones their order stays, and those whose value is not
    known come last either way.
    """
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
    """What rows are compared by: of one type for one sort, None if it is not known."""
    run = row.summary
    if sort == "started":
        return row.started
    if sort == "name":
        return (run.name if run is not None else row.directory).lower()
    if sort == "storage":
        return row.storage
    if run is None:
        return None
    values = {
        "kind": run.kind,
        "state": run.state,
        "duration": row.duration_s,
        "reports": run.reports,
        "workers": run.workers,
    }
    return values[sort]


def progress_text(run: RunSummary) -> str:
    """How far a run is: "12 of 50 trials" for a search, "340 reports" for a training; empty for a
    dataset, which reports nothing.
    """
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


def metrics_text(metrics: Mapping[str, Any], most: int = SHOWN_METRICS) -> str:
    """The first numbers of a report: "loss=0.3 accuracy=0.91"."""
    numbers = [
        (name, value)
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    shown = " ".join(f"{name}={_short(value)}" for name, value in numbers[:most])
    return f"{shown} …" if len(numbers) > most else shown


def _short(value: float) -> str:
    """A number in few digits; integers as long as they are short."""
    try:
        return str(value) if isinstance(value, int) and abs(value) < 10**9 else f"{value:.4g}"
    except OverflowError:  # an integer beyond every float
        return "huge"


def error_line(error: str) -> str:
    """The line of an error that says what it was: the last one, which in a traceback is the
    exception.
    """
    lines = [line for line in error.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else ""
