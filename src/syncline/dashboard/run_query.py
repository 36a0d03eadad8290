"""Queries for the list of runs: rows, filter, order, pages, selected columns, and texts of cells.
Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any
from urllib.parse import urlencode

from syncline.dashboard.metric_curves import is_counter
from syncline.runs.json_values import Record, finite
from syncline.runs.metric_series import numbers
from syncline.runs.run_list import RunSummary

PAGE_ROWS = 50
FRESH_S = 1.5
"""Seconds for which the summary of a running run is valid."""
PATIENCE_S = 15.0
"""Seconds for which the summary of an unreadable run is valid; it may be partially written."""
COST_FACTOR = 20.0
"""A summary is valid for this multiple of the time that it took, in addition; this bounds the share
of time that one record can consume.
"""
SHOWN_METRICS = 3
ENDED_TRIALS = frozenset({"TERMINATED", "ERROR"})
SORTS = ("name", "kind", "state", "started", "duration", "reports", "workers", "storage")

PARAMETER, METRIC = "parameter:", "metric:"
"""Beginnings of the names of selected columns."""
_COLUMN_KINDS = (PARAMETER, METRIC)
MAX_COLUMNS = 12
MAX_OFFERED = 500
MAX_COLUMN_LENGTH = 320
COLUMN_ROWS = 200
"""Runs whose parameters and metrics are offered as columns."""

Key = tuple[int, str]


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
    annotated: float | None = None
    """Modification time of the annotations in the summary."""
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
    columns: tuple[str, ...] = ()
    """Selected columns, as in `Selection.offered`."""
    archived: bool = False
    """Show the archived runs instead of the others."""

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
            sort=sort if _is_sort(sort) else "started",
            descending=descending if _is_sort(sort) else True,
            page=max(0, int(number) - 1)
            if number.isascii() and number.isdigit() and len(number) < 7
            else 0,
            columns=_columns_of(parameters.get("columns", "")),
            archived=parameters.get("archived") == "1",
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
            "columns": json.dumps(self.columns, separators=(",", ":")) if self.columns else "",
            "archived": "1" if self.archived else "",
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
    offered: Sequence[str]
    """Columns that the runs offer: "parameter:NAME" and "metric:NAME"."""


def search_text(directory: str, run: RunSummary) -> str:
    """Return the searchable text of a run in lower case."""
    words = [
        directory,
        run.name,
        run.kind,
        run.state,
        run.host or "",
        *run.tags,
        run.note,
        run.cause,
        (run.error or "")[-2_000:],
        metrics_text(run.metrics, 50),
    ]
    return "\n".join(word[:4_000] for word in words).lower()


def filter_rows(rows: Sequence[Row], query: Query) -> Sequence[Row]:
    """Return the rows that match a query, in their order."""
    found: Sequence[Row] = [row for row in rows if is_archived(row) == query.archived]
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
    if sort.startswith(_COLUMN_KINDS):
        value = column_value(run, sort)
        # Numbers before texts: they cannot be compared.
        return None if value is None else (isinstance(value, str), value)
    return {
        "kind": run.kind,
        "state": run.state,
        "duration": row.duration_s,
        "reports": run.reports,
        "workers": run.workers,
    }[sort]


def offered_columns(rows: Sequence[Row]) -> list[str]:
    """Return the parameters and metrics of the first rows as columns."""
    found: dict[str, None] = {}
    for row in rows[:COLUMN_ROWS]:
        if row.summary is not None:
            found |= dict.fromkeys(f"{PARAMETER}{name}" for name in row.summary.parameters)
            found |= dict.fromkeys(f"{METRIC}{name}" for name, _ in numbers(row.summary.metrics))
    return sorted(found, key=lambda column: (column.startswith(METRIC), column))[:MAX_OFFERED]


def column_value(run: RunSummary, column: str) -> float | str | None:
    """Return the value of a run in a column of `offered_columns`; None if it has none."""
    if column.startswith(PARAMETER):
        value = run.parameters.get(column.removeprefix(PARAMETER))
        return value if isinstance(value, (int, float, str)) else None
    wanted = column.removeprefix(METRIC)
    return next((value for name, value in numbers(run.metrics) if name == wanted), None)


def is_archived(row: Row) -> bool:
    return row.summary is not None and row.summary.archived


def _is_sort(sort: str) -> bool:
    return sort in SORTS or (sort.startswith(_COLUMN_KINDS) and len(sort) <= MAX_COLUMN_LENGTH)


def _columns_of(text: str) -> tuple[str, ...]:
    """Return the columns in a URL parameter; ignore invalid ones."""
    try:
        found = json.loads(text) if len(text) < 10_000 else []
    except ValueError:
        return ()
    columns = [
        name
        for name in (found if isinstance(found, list) else [])
        if isinstance(name, str) and _is_sort(name) and name not in SORTS
    ]
    return tuple(dict.fromkeys(columns))[:MAX_COLUMNS]


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
    """Return the first numbers of a report, counters last: "loss=0.3 accuracy=0.91 epoch=2"."""
    found = [
        (name, value)
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    found.sort(key=lambda each: is_counter(each[0]))
    shown = " ".join(f"{name}={_short(value)}" for name, value in found[:most])
    return f"{shown} …" if len(found) > most else shown


RL_TEXTS = (
    ("env_runners/episode_return_mean", "return"),
    ("evaluation/env_runners/episode_return_mean", "evaluation"),
    ("env_runners/episode_len_mean", "length"),
    ("num_env_steps_sampled_lifetime", "steps"),
    ("num_env_steps_sampled_throughput_per_sec", "steps/s"),
)
"""Metrics of reinforcement learning that the list shows, with their short names."""


def report_text(run: RunSummary, most: int = SHOWN_METRICS) -> str:
    """Return the first numbers of a run's last report, with short names for kind `rl`."""
    if run.kind != "rl":
        return metrics_text(run.metrics, most)
    found = ((text, finite(run.metrics.get(name))) for name, text in RL_TEXTS)
    return " ".join(f"{text}={_short_count(value)}" for text, value in found if value is not None)


def _short_count(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else _short(value)


def _short(value: float) -> str:
    """Format a number in few digits; short integers completely."""
    try:
        return str(value) if isinstance(value, int) and abs(value) < 10**9 else f"{value:.4g}"
    except OverflowError:  # an int beyond the range of float
        return "huge"
