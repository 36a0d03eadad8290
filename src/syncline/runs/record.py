"""`RunRecord`: reads the record of a run, finished, running or killed.

A last line without an end is one that is being written or was cut short by a kill, and is left out.
A broken line elsewhere means that the file was damaged, and is an error, because what would be
shown otherwise is not what happened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from syncline.runs.directory import (
    CHECKPOINTS_FILE,
    EVENTS_FILE,
    LATEST_FILE,
    METRICS_FILE,
    OUTCOME_FILE,
    RUN_FILE,
)
from syncline.runs.files import Files
from syncline.runs.lines import read_pieces


class RunRecord:
    """Reader of one run's record; every call reads anew, so a run can be followed.

    Args:
        files: Where the record lies.

    All methods raise ValueError for a damaged file and OSError for one that cannot be read.
    """

    def __init__(self, files: Files) -> None:
        self._files = files

    def exists(self) -> bool:
        """Whether there is a record at all."""
        return self._files.read(RUN_FILE) is not None

    def run(self) -> dict[str, Any]:
        """`run.json`: name, started, config, environment; empty if the run has not got so far."""
        return self._object(RUN_FILE) or {}

    def checkpoints(self) -> dict[str, Any] | None:
        """`checkpoints.json`, or None if no checkpoint was ever registered."""
        return self._object(CHECKPOINTS_FILE)

    def outcome(self) -> dict[str, Any] | None:
        """`outcome.json`: status, error, time; None while the run goes on, and after a kill."""
        outcome = self._object(OUTCOME_FILE)
        return (
            outcome
            if outcome is not None and is_outcome_of(outcome, self.run().get("started", 0.0))
            else None
        )

    def events(self) -> list[dict[str, Any]]:
        """Every event, first in first."""
        return self._lines(EVENTS_FILE)

    def reports(self, rank: int | None = None) -> list[dict[str, Any]]:
        """Every report that is kept, first in first, and rank 0's latest: {"iteration", "time",
        "rank", "metrics"}.

        Args:
            rank: Only its reports. A search has "trial" instead of "rank".
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

    def _object(self, name: str) -> dict[str, Any] | None:
        data = self._files.read(name)
        return None if data is None else _parse(data, name)

    def _lines(self, name: str) -> list[dict[str, Any]]:
        complete = [
            line for piece in read_pieces(self._files, name) for line in piece.split(b"\n")[:-1]
        ]
        try:
            records = json.loads(
                b"[" + b",".join(complete) + b"]"
            )  # in one go, which is quicker than each
        except ValueError:
            records = []
        if len(records) == len(complete) and all(type(record) is dict for record in records):
            return list(records)
        return [
            _parse(line, f"{name}, line {number}") for number, line in enumerate(complete, start=1)
        ]


def is_outcome_of(outcome: Mapping[str, Any], started: Any) -> bool:
    """Whether an outcome is that of the start of the run in `run.json`: one that was started again
    has not ended yet. False for one that does not say so in a form that is known.
    """
    if "started" in outcome:
        return bool(outcome["started"] == started)
    when = outcome.get("time")
    return isinstance(when, (int, float)) and isinstance(started, (int, float)) and when >= started


def _parse(data: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise ValueError(
            f"{where} of the run directory is damaged ({error}): it starts {data[:60]!r}. Restore it from a copy."
        ) from error
    if not isinstance(value, dict):
        raise ValueError(
            f"{where} of the run directory is damaged: it holds no object but {data[:60]!r}. Restore it from a copy."
        )
    return value
