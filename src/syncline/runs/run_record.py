"""`RunRecord`: strict reader of the record of a run, finished, running or killed.

An incomplete last line is being written or was cut short by a kill; it is left out. A broken line
elsewhere means that the file is damaged and raises an error, because a resumed run must not
continue from wrong data.
"""

from __future__ import annotations

import json

from syncline.runs.json_values import JsonObject, Record
from syncline.runs.record_files import Files, read_pieces
from syncline.runs.run_directory import (
    CHECKPOINTS_FILE,
    EVENTS_FILE,
    LATEST_FILE,
    METRICS_FILE,
    OUTCOME_FILE,
    RUN_FILE,
)


class RunRecord:
    """Reader of one run's record. Every call reads the files again.

    Args:
        files: Storage of the record.

    All methods raise ValueError for a damaged file and OSError for an unreadable one.
    """

    def __init__(self, files: Files) -> None:
        self._files = files

    def exists(self) -> bool:
        """Return True if the record exists."""
        return self._files.read(RUN_FILE) is not None

    def run(self) -> JsonObject:
        """Return `run.json`: name, started, config, environment; empty if not written yet."""
        return self._object(RUN_FILE) or {}

    def checkpoints(self) -> JsonObject | None:
        """Return `checkpoints.json`, or None if no checkpoint was ever registered."""
        return self._object(CHECKPOINTS_FILE)

    def outcome(self) -> JsonObject | None:
        """Return `outcome.json`: status, error, time; None while running and after a kill."""
        outcome = self._object(OUTCOME_FILE)
        return (
            outcome
            if outcome is not None and is_outcome_of(outcome, self.run().get("started", 0.0))
            else None
        )

    def events(self) -> list[JsonObject]:
        """Return all events in order."""
        return self._lines(EVENTS_FILE)

    def reports(self, rank: int | None = None) -> list[JsonObject]:
        """Return all kept reports in order, then rank 0's latest one: {"iteration", "time",
        "rank", "metrics"}.

        Args:
            rank: Return only reports of this rank. Reports of a search have "trial" instead.
        """
        reports = [
            line for line in self._lines(METRICS_FILE) if rank is None or line["rank"] == rank
        ]
        latest = self._object(LATEST_FILE)
        if (
            latest is not None
            and rank in (None, 0)
            and (not reports or latest["iteration"] > reports[-1]["iteration"])
        ):
            reports.append(latest)
        return reports

    def _object(self, name: str) -> JsonObject | None:
        data = self._files.read(name)
        return None if data is None else _parse(data, name)

    def _lines(self, name: str) -> list[JsonObject]:
        complete = [
            line for piece in read_pieces(self._files, name) for line in piece.split(b"\n")[:-1]
        ]
        try:
            # Parsing all lines as one array is faster than line by line.
            records = json.loads(b"[" + b",".join(complete) + b"]")
        except ValueError:
            records = []
        if len(records) == len(complete) and all(type(record) is dict for record in records):
            return list(records)
        return [
            _parse(line, f"{name}, line {number}") for number, line in enumerate(complete, start=1)
        ]


def is_outcome_of(outcome: Record, started: object) -> bool:
    """Return True if an outcome belongs to the latest start of the run. A restarted run has an
    outcome of an earlier start until it ends.
    """
    if "started" in outcome:
        return bool(outcome["started"] == started)
    when = outcome.get("time")
    return isinstance(when, (int, float)) and isinstance(started, (int, float)) and when >= started


def _parse(data: bytes, where: str) -> JsonObject:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise ValueError(
            f"{where} of the run directory is damaged ({error}): it starts with {data[:60]!r}. "
            "Restore it from a copy."
        ) from error
    if not isinstance(value, dict):
        raise ValueError(
            f"{where} of the run directory is damaged: it contains {data[:60]!r} instead of a JSON "
            "object. Restore it from a copy."
        )
    return value
