"""`Run`: a run as those see it who show it: dashboard, command line, notebooks. `open` finds it.

What is shown is what is there: damaged lines are passed over, values of an unknown form are left
out, and `problems` says so. `refresh` reads what has been added since, so a run that goes on can be
followed. Not covered: what a run needs to go on; `record.py` is strict.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from syncline.runs import finding, parsing
from syncline.runs.directory import (
    CHECKPOINTS_FILE,
    ENVIRONMENT_FILE,
    EVENTS_FILE,
    LATEST_FILE,
    METRICS_FILE,
    OUTCOME_FILE,
    RUN_FILE,
    WORKERS_FILE,
)
from syncline.runs.finding import RunSummary
from syncline.runs.follow import LineReader, LogFile, LogReader, log_files
from syncline.runs.places import FileFacts, Place, checked_part, place
from syncline.runs.record import is_outcome_of
from syncline.runs.secrets import masked
from syncline.runs.series import MOST_MEMBERS, Series

MOST_SAMPLES = 2_000
"""Samples of one worker that are kept; of more, every second is dropped."""
LARGEST_OBJECT = 16 * 1024**2
"""Bytes of a file that is replaced as a whole; a larger one is none that syncline has written, and
counts as one that cannot be read.
"""


_SETTLED_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One worker group of a training run."""

    number: int
    """Over all starts of the run, from 1."""
    began: float
    """When its training functions began, in seconds since the epoch."""
    ended: float | None = None
    """When the next thing after it happened; None while it runs."""
    workers: Sequence[Mapping[str, Any]] = ()
    """Of each rank: `rank`, `node_id`, `node_ip`, `hostname`, `pid`, `gpu_ids`, …"""
    first_report: int | None = None
    """The number of its first report, where the record says so."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """What ranks have failed with, by rank: the traceback where there is one."""


def open(path: str | os.PathLike[str] | Place) -> Run:
    """The run in a directory, finished, running or killed; nothing needs to be running.

    Args:
        path: The run directory (`Result.path`), or its URI.

    Raises:
        ValueError: There is no run, its record is of a later version than this one reads, or
        pyarrow does not know the URI. OSError: The directory cannot be read.
    """
    run = Run(path if isinstance(path, Place) else place(path))
    run.refresh()
    return run


class Run:
    """A run, as of the last `refresh`. For one thread at a time; made by `open`."""

    def __init__(self, directory: Place) -> None:
        self.place = directory
        """Where it lies."""
        self._described: Mapping[str, Any] = {"environment": {}}
        self._config: Mapping[str, Any] = {}
        self._attempts: tuple[int, list[Attempt]] = (0, [])  # of so many events
        self._environment: Mapping[str, Any] = {}
        self._outcome: Mapping[str, Any] | None = None
        self._checkpoints: Mapping[str, Any] = {}
        self._readers: dict[str, LineReader] = {}
        self._lines: dict[str, list[dict[str, Any]]] = {EVENTS_FILE: []}
        self._names: dict[str, list[str]] = {}
        self._logs: list[LogFile] | None = None
        self._seen: dict[
            str, tuple[FileFacts, float, float, dict[str, Any] | None]
        ] = {}  # since when so, when read, and what
        self._samples: dict[str, list[dict[str, Any]]] = {}
        self._series = Series()
        self._last: Mapping[str, Any] | None = None
        self.problems: list[str] = []
        """What of the record could not be read."""

    def refresh(self) -> None:
        """Read what was added since. Costs little where nothing was.

        Raises:
            ValueError: There is no run any more, or one that cannot be read.
            OSError: The directory cannot be read.
        """
        described = self._object(RUN_FILE)
        if described is None:
            raise ValueError(
                f"{self.place.path!r} holds no run.json that can be read, so it is not the directory of a run: give the run directory "
                "itself, that is `storage_path`/`name` of its RunConfig, or `result.path`."
            )
        finding.check_format(described)
        if repr(self._described.get("started", described.get("started"))) != repr(
            described.get("started")
        ):
            self._begin_anew()  # the directory may be another one than before
        if described.get("config") is not self._described.get("config"):
            self._config = _mapping(masked(described.get("config")))
        self._described = {**described, "environment": _mapping(described.get("environment"))}
        self._environment = self._object(ENVIRONMENT_FILE) or {}
        self._outcome = self._object(OUTCOME_FILE)
        self._checkpoints = self._object(CHECKPOINTS_FILE) or {}
        for name, kept in self._lines.items():
            kept.extend(self._reader(name).read())
        for directory in self._names:
            self._names[directory] = self.place.file_names(directory)
        if self._logs is not None:
            self._logs = log_files(self.place)
        for batch in self._reader(METRICS_FILE).batches():
            self._series.extend(batch)
            of_first = (
                record
                for record in reversed(batch)
                if record.get("rank", 0) == 0 and type(record.get("iteration")) is int
            )
            self._last = next(of_first, self._last)
        latest = self._object(LATEST_FILE)
        # It may be older than a report that was kept since.
        if (
            latest is not None
            and type(latest.get("iteration")) is int
            and latest["iteration"] > (self._last or {}).get("iteration", -1)
        ):
            self._last = latest
            self._series.add(latest)
        for batch in self._reader(WORKERS_FILE).batches():
            for record in batch:
                self._take_sample(record)
        self.problems = [
            f"{reader.unreadable} lines of {name}"
            for name, reader in self._readers.items()
            if reader.unreadable
        ]
        self.problems += [
            f"what comes after the limits of {name}"
            for name, reader in self._readers.items()
            if reader.is_full
        ]

    def _begin_anew(self) -> None:
        """Forget what was read. Lists that were given out go on as those of the run as it is
        now.
        """
        self._readers.clear()
        for kept in (*self._lines.values(), *self._samples.values()):
            kept.clear()
        self._attempts = (0, [])
        self._samples.clear()
        self._series = Series()
        self._last = None

    @property
    def kept_values(self) -> int:
        """How many values of the record are in memory, at most: events, samples and other lines,
        but not reports.
        """
        return sum(reader.values for name, reader in self._readers.items() if name != METRICS_FILE)

    @property
    def path(self) -> str:
        """Its directory or URI."""
        return self.place.path

    @property
    def name(self) -> str:
        """What people call it."""
        return str(self._described.get("name", self.place.name))

    @property
    def kind(self) -> str:
        """train, tune or data."""
        return str(self._described.get("kind", "train"))

    @property
    def config(self) -> Mapping[str, Any]:
        """How it was configured, without secrets."""
        return self._config

    @property
    def environment(self) -> Mapping[str, Any]:
        """Machine, program, packages, git revision and what differs from it."""
        return {**self._described["environment"], **self._environment}

    @property
    def started(self) -> float | None:
        """When it was last started, in seconds since the epoch."""
        started = self._described.get("started")
        return (
            float(started) if isinstance(started, (int, float)) and math.isfinite(started) else None
        )

    @property
    def outcome(self) -> Mapping[str, Any] | None:
        """How it ended: `status`, `error`, `time`; None while it runs, and after a kill."""
        outcome = self._outcome
        if (
            outcome is None
            or not isinstance(outcome.get("time"), (int, float))
            or "status" not in outcome
        ):
            return None
        return outcome if is_outcome_of(outcome, self._described.get("started", 0.0)) else None

    @property
    def state(self) -> str:
        """running, finished, errored, failed, aborted or killed."""
        return finding.state_of({**self._described, "started": self.started or 0.0}, self.outcome)

    @property
    def events(self) -> Sequence[Mapping[str, Any]]:
        """What happened, first in first: `time`, `event` and what belongs to it."""
        return self._lines[EVENTS_FILE]

    @property
    def series(self) -> Series:
        """What was reported."""
        return self._series

    @property
    def samples(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """What workers used of their machines, by rank or trial: lines of `workers.jsonl`."""
        return self._samples

    @property
    def checkpoints(self) -> Sequence[Mapping[str, Any]]:
        """The checkpoints that are kept: `index`, `name`, `metrics`, …"""
        return _objects(self._checkpoints.get("checkpoints"))

    @property
    def attempts(self) -> list[Attempt]:
        """The worker groups, the first one first."""
        if self._attempts[0] != len(self.events):
            self._attempts = (len(self.events), self._found_attempts())
        return self._attempts[1]

    def _found_attempts(self) -> list[Attempt]:
        found: list[Attempt] = []
        for event in self.events:
            kind, moment = event.get("event"), event.get("time")
            if not isinstance(moment, (int, float)):
                continue
            if kind == "attempt":
                first, workers = event.get("first_report"), _objects(event.get("workers"))
                first_report = first if isinstance(first, int) else None
                found.append(
                    Attempt(
                        number=len(found) + 1,
                        began=float(moment),
                        workers=workers,
                        first_report=first_report,
                    )
                )
            elif (
                found
                and found[-1].ended is None
                and kind in ("failure", "step_times", "finished", "errored", "aborted", "started")
            ):
                found[-1] = replace(found[-1], ended=float(moment))
            if kind == "failure" and found:
                texts = {**_mapping(event.get("ranks")), **_mapping(event.get("tracebacks"))}
                found[-1] = replace(
                    found[-1], failures={str(rank): str(text) for rank, text in texts.items()}
                )
        return found

    @property
    def summary(self) -> RunSummary:
        """What tables show of it."""
        outcome, attempts, last = self.outcome, self.attempts, self._last or {}
        search = finding.search_state(self.place) if self.kind == "tune" else None
        return RunSummary(
            name=self.name,
            path=self.path,
            state=self.state,
            started=self.started,
            ended=float(outcome["time"]) if outcome is not None else None,
            last_activity=finding.last_activity(self.place),
            host=_text(self.environment.get("hostname")),
            workers=len(attempts[-1].workers) if attempts else None,
            attempts=len(attempts),
            reports=search.results if search is not None else int(last.get("iteration", -1)) + 1,
            metrics=search.best if search is not None else _mapping(last.get("metrics")),
            checkpoints=len(self.checkpoints),
            error=_text(outcome.get("error")) if outcome is not None else None,
            kind=self.kind,
            trials=search.trials if search is not None else None,
        )

    @property
    def logs(self) -> list[LogFile]:
        """What workers printed, in files."""
        if self._logs is None:
            self._logs = log_files(self.place)
        return self._logs

    def log(self, member: str, *, tail_bytes: int | None = None) -> LogReader:
        """Reads what one worker printed, and goes on with what it prints.

        Args:
            member: As in `logs`: "rank-0".
            tail_bytes: Begin so much before the end; None begins at the beginning.

        Raises:
            ValueError: No name of a log.
        """
        return LogReader(self.place, checked_part(member), tail_bytes=tail_bytes)

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Every record of a file of lines (`trials.jsonl`, `data/train.jsonl`). Read at the first
        call, then by `refresh`.
        """
        if name not in self._lines:
            self._lines[name] = self._reader(name).read()
        return self._lines[name]

    def names_in(self, directory: str) -> list[str]:
        """Names of the files in a directory of the record, such as `data` or `profiles`. Read as
        `lines` is.
        """
        if directory not in self._names:
            self._names[directory] = self.place.file_names(directory)
        return self._names[directory]

    def _reader(self, name: str) -> LineReader:
        return self._readers.setdefault(name, LineReader(self.place, name))

    def _object(self, name: str) -> dict[str, Any] | None:
        """A file that is replaced as a whole, read again where it has changed; None where it is
        none or cannot be read.
        """
        facts = self.place.facts(name)
        if facts is None:
            return None
        now = time.monotonic()
        seen = self._seen.get(name)
        since = seen[1] if seen is not None and seen[0] == facts else now
        # Object stores know times to a second only: what was written twice in one looks the same
        # for so long.
        if (
            seen is None
            or seen[0] != facts
            or (not facts.identity and seen[2] <= since + _SETTLED_S)
        ):
            try:
                value = (
                    parsing.parsed(self.place.read_from(name, 0, LARGEST_OBJECT))
                    if facts.size <= LARGEST_OBJECT
                    else None
                )
            except ValueError:
                value = None
            seen = self._seen[name] = (
                facts,
                since,
                now,
                value if isinstance(value, dict) else None,
            )
        return seen[3]

    def _take_sample(self, record: dict[str, Any]) -> None:
        member = record.get("trial", record.get("rank"))
        has_usage = isinstance(record.get("usage"), dict) and isinstance(
            record.get("time"), (int, float)
        )
        if not isinstance(member, (int, str)) or not has_usage:
            return
        if len(self._samples) >= MOST_MEMBERS and str(member) not in self._samples:
            return
        samples = self._samples.setdefault(str(member), [])
        samples.append(record)
        if len(samples) > MOST_SAMPLES:
            del samples[1::2]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
