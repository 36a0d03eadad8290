"""Index of all runs below the storage paths: listed, summarized, filtered, sorted and paged.

Listing costs two system calls per run; a summary reads the record and costs a thousand times as
much. Therefore the list is available first, the runs on a visitor's page are summarized next, and a
background thread summarizes the others, the newest first. The summary of an ended run is kept until
the run is restarted; summaries of running runs are refreshed. Independent of the web framework.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from syncline.dashboard.run_query import (
    PAGE_ROWS,
    Key,
    Query,
    Row,
    Selection,
    filter_rows,
    is_archived,
    offered_columns,
    ordered,
    search_text,
)
from syncline.runs.annotations import read_annotations
from syncline.runs.run_directory import ANNOTATIONS_FILE, RUN_FILE
from syncline.runs.run_list import RunSummary, list_run_names, summarize_run, unreadable_summary
from syncline.runs.run_storage import StorageDirectory, checked_file_name

PAUSE_S = 3.0
"""Seconds between two listings of the storage paths."""
IDLE_S = 60.0
"""Seconds without a visitor after which listing stops."""
log = logging.getLogger("syncline.dashboard")


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
            return self._with_annotations(known)
        return Row(storage=key[0], directory=key[1], listed=modified, search_text=key[1].lower())

    def _with_annotations(self, row: Row) -> Row:
        """Return the row with its present annotations, if its storage path is local: each look at
        a remote file is a request.
        """
        storage = self.storages[row.storage]
        if row.summary is None or storage.local_path is None:
            return row
        try:
            place = storage.subdirectory(row.directory)
            annotated = place.modified(ANNOTATIONS_FILE)
            if annotated == row.annotated:
                return row
            found = read_annotations(place)
        except (OSError, ValueError):
            return row
        summary = replace(row.summary, **vars(found))
        text = search_text(row.directory, summary)
        return replace(row, summary=summary, annotated=annotated, search_text=text)

    def changed(self, key: Key) -> None:
        """Read a run again that the dashboard has changed or deleted. Blocks: call it in a
        thread.
        """
        place = self.run_directory(*key)
        with self._lock:
            row = self._rows.get(key)
            if row is not None and place.file_info(RUN_FILE) is None:
                del self._rows[key]
                return
        if row is not None:
            self._read(row)

    def select(self, query: Query) -> Selection:
        """Return the runs that match a query; wait for the first listing. Also marks the index as
        in use.
        """
        self._listed.wait(timeout=10.0)
        with self._lock:
            self._looked_at = self._clock()
            rows, problems = list(self._rows.values()), tuple(self._problems)
        found = ordered(filter_rows(rows, query), query)
        rows = [row for row in rows if is_archived(row) == query.archived]
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
            offered=offered_columns(found),
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
        annotated = None
        try:
            annotated = place.modified(ANNOTATIONS_FILE)
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
            annotated=annotated,
            search_text=search_text(row.directory, summary),
        )
        with self._lock:
            known = self._rows.get(row.key)
            if known is not None and known.listed == row.listed:
                self._rows[row.key] = fresh
        return fresh

    def run_updates(self, stop: threading.Event) -> None:
        """List runs and summarize those due, the newest first, until `stop` is set. Runs
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
