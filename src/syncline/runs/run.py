"""`Run`: reader of a run for dashboard, command line and notebooks; `open` creates it.

The reader is lenient: it skips damaged lines and values of an unknown form, and lists them in
`problems`. `refresh` reads new data, so a running run can be followed. Not covered:
resuming a run, which needs the strict reader in `run_record.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from syncline.records import dataclass
from syncline.runs import json_values, run_list
from syncline.runs.json_values import JsonObject, Record
from syncline.runs.metric_series import MAX_MEMBERS, Series
from syncline.runs.rotating_lines import RotatingReader
from syncline.runs.run_directory import (
    CHECKPOINTS_FILE,
    ENVIRONMENT_FILE,
    EVENTS_FILE,
    LATEST_FILE,
    METRICS_FILE,
    OUTCOME_FILE,
    RUN_FILE,
    SEARCH_FILE,
    WORKERS_FILE,
)
from syncline.runs.run_list import RunSummary
from syncline.runs.run_record import is_outcome_of
from syncline.runs.run_storage import FileInfo, StorageDirectory, checked_file_name, open_directory
from syncline.runs.secrets import masked
from syncline.runs.tailing import LineReader, LogFile, LogReader, log_files

MAX_SAMPLES = 2_000
"""Maximum samples kept per worker; beyond it every second sample is dropped."""
MAX_OBJECT_BYTES = 16 * 1024**2
"""Maximum bytes of a file that is replaced as a whole; larger files count as unreadable."""
_SETTLED_S = 2.0
"""Seconds for which a remote file is read again although its size and time are unchanged."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One worker group of a training run."""

    number: int
    """Number over all starts of the run, from 1."""
    began: float
    """Start of the training functions, in seconds since the epoch."""
    ended: float | None = None
    """Time of the next event after it; None while the attempt runs."""
    workers: Sequence[Record] = ()
    """For each rank: `rank`, `node_id`, `node_ip`, `hostname`, `pid`, `gpu_ids`, …"""
    first_report: int | None = None
    """Number of its first report, if the record has it."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Error of each failed rank, with the traceback if there is one."""


def open(path: str | os.PathLike[str] | StorageDirectory) -> Run:
    """Open a run directory, finished, running or killed; needs no running engine.

    Args:
        path: Run directory (`Result.path`) or its URI.

    Raises:
        ValueError: The directory holds no run, the record has a newer format than this version
            reads, or pyarrow does not know the URI.
        OSError: The directory cannot be read.
    """
    run = Run(path if isinstance(path, StorageDirectory) else open_directory(path))
    run.refresh()
    return run


class Run:
    """A run as of the last `refresh`; created by `open`. For one thread at a time."""

    def __init__(self, directory: StorageDirectory) -> None:
        self.directory = directory
        """Directory of the run."""
        self._described: Record = {"environment": {}}
        self._config: Record = {}
        self._attempts: tuple[int, list[Attempt]] = (0, [])  # cached for this number of events
        self._environment: Record = {}
        self._outcome: Record | None = None
        self._checkpoints: Record = {}
        self._search: Record = {}
        self._readers: dict[str, LineReader] = {}
        self._lines: dict[str, list[JsonObject]] = {EVENTS_FILE: []}
        self._recent: dict[str, tuple[RotatingReader, list[JsonObject], int]] = {}
        self._states: dict[str, Record] = {}
        self._names: dict[str, list[str]] = {}
        self._logs: list[LogFile] | None = None
        # By file name: its info, since when that is unchanged, time of the read, content.
        self._seen: dict[str, tuple[FileInfo, float, float, JsonObject | None]] = {}
        self._samples: dict[str, list[JsonObject]] = {}
        self._series = Series()
        self._last: Record | None = None
        self.problems: list[str] = []
        """Descriptions of the parts of the record that could not be read."""

    def refresh(self) -> None:
        """Read new data.

        Raises:
            ValueError: The run no longer exists or its record is unreadable.
            OSError: The directory cannot be read.
        """
        described = self._object(RUN_FILE)
        if described is None:
            raise ValueError(
                f"{self.directory.path!r} contains no readable run.json, so it is not a run "
                f"directory. "
                "Pass the run directory itself: `storage_path`/`name` of its RunConfig, or "
                "`result.path`."
            )
        run_list.check_format(described)
        if repr(self._described.get("started", described.get("started"))) != repr(
            described.get("started")
        ):
            self._reset()  # the run was restarted, or the directory replaced
        if described.get("config") is not self._described.get("config"):
            self._config = _mapping(masked(described.get("config")))
        self._described = {**described, "environment": _mapping(described.get("environment"))}
        self._environment = self._object(ENVIRONMENT_FILE) or {}
        self._outcome = self._object(OUTCOME_FILE)
        self._checkpoints = self._object(CHECKPOINTS_FILE) or {}
        self._search = self._object(SEARCH_FILE) or {}
        for name, kept in self._lines.items():
            kept.extend(self._reader(name).read())
        for name in self._recent:
            self._read_recent(name)
        for name in self._states:
            self._states[name] = self._object(name) or {}
        for directory in self._names:
            self._names[directory] = self.directory.file_names(directory)
        if self._logs is not None:
            self._logs = log_files(self.directory)
        for batch in self._reader(METRICS_FILE).batches():
            self._series.extend(batch)
            of_first = (
                record
                for record in reversed(batch)
                if record.get("rank", 0) == 0 and type(record.get("iteration")) is int
            )
            self._last = next(of_first, self._last)
        latest = self._object(LATEST_FILE)
        # latest.json may be older than a report that was kept since.
        if (
            latest is not None
            and type(latest.get("iteration")) is int
            and latest["iteration"] > (self._last or {}).get("iteration", -1)
        ):
            self._last = latest
            self._series.add(latest)
        for batch in self._reader(WORKERS_FILE).batches():
            for record in batch:
                self._add_sample(record)
        self.problems = [
            f"{reader.unreadable} lines of {name}"
            for name, reader in self._readers.items()
            if reader.unreadable
        ]
        self.problems += [
            f"the part of {name} beyond the size limit"
            for name, reader in self._readers.items()
            if reader.is_full
        ]

    def _reset(self) -> None:
        """Discard all data. Lists that callers hold are emptied and filled again."""
        self._readers.clear()
        self._recent = {
            name: (RotatingReader(self.directory, name), [], most)
            for name, (_, _, most) in self._recent.items()
        }
        for kept in (*self._lines.values(), *self._samples.values()):
            kept.clear()
        self._attempts = (0, [])
        self._samples.clear()
        self._series = Series()
        self._last = None

    @property
    def kept_values(self) -> int:
        """Upper bound of the number of values in memory, without reports."""
        return sum(reader.values for name, reader in self._readers.items() if name != METRICS_FILE)

    @property
    def path(self) -> str:
        """Directory or URI of the run."""
        return self.directory.path

    @property
    def name(self) -> str:
        """Display name."""
        return str(self._described.get("name", self.directory.name))

    @property
    def kind(self) -> str:
        """train, tune, data, serve or rl."""
        return str(self._described.get("kind", "train"))

    @property
    def config(self) -> Record:
        """Configuration without secrets."""
        return self._config

    @property
    def environment(self) -> Record:
        """Machine, program, packages, git revision and git diff."""
        return {**self._described["environment"], **self._environment}

    @property
    def started(self) -> float | None:
        """Time of the last start, in seconds since the epoch."""
        return json_values.finite(self._described.get("started"))

    @property
    def outcome(self) -> Record | None:
        """Outcome: `status`, `error`, `time`; None while the run is running and after a kill."""
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
        """running, finished, errored, aborted or killed."""
        return run_list.state_of({**self._described, "started": self.started or 0.0}, self.outcome)

    @property
    def events(self) -> Sequence[Record]:
        """Events in order: `time`, `event` and further fields."""
        return self._lines[EVENTS_FILE]

    @property
    def series(self) -> Series:
        """Reported metrics as curves."""
        return self._series

    @property
    def samples(self) -> Mapping[str, Sequence[Record]]:
        """Resource samples by rank or trial: lines of `workers.jsonl`."""
        return self._samples

    @property
    def checkpoints(self) -> Sequence[Record]:
        """Checkpoints that are kept: `index`, `name`, `metrics`, …"""
        return _objects(self._checkpoints.get("checkpoints"))

    @property
    def search(self) -> Record:
        """Progress of a search, the content of `trials.json`; empty for other runs."""
        return self._search

    @property
    def attempts(self) -> list[Attempt]:
        """Worker groups in order."""
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
        """Summary of the run for tables."""
        return run_list.summary_of(
            self.directory,
            self._described,
            self.outcome,
            attempts=len(self.attempts),
            workers=len(self.attempts[-1].workers) if self.attempts else None,
            checkpoints=len(self.checkpoints),
            last=self._last and {**self._last, "metrics": _mapping(self._last.get("metrics"))},
            stalled_since=run_list.stalled_since(self._lines[EVENTS_FILE]),
        )

    @property
    def logs(self) -> list[LogFile]:
        """Logs of the workers."""
        if self._logs is None:
            self._logs = log_files(self.directory)
        return self._logs

    def log(self, member: str, *, tail_bytes: int | None = None) -> LogReader:
        """Return a reader of one worker's log that can follow it.

        Args:
            member: Name of the log as in `logs`: "rank-0".
            tail_bytes: Bytes before the end at which to begin; by default at the beginning.

        Raises:
            ValueError: The name is not a valid log name.
        """
        return LogReader(self.directory, checked_file_name(member), tail_bytes=tail_bytes)

    def lines(self, name: str) -> list[JsonObject]:
        """Return all records of a file of lines (`trials.jsonl`, `data/train.jsonl`). The first
        call reads it; later `refresh` calls extend the returned list.
        """
        if name not in self._lines:
            self._lines[name] = self._reader(name).read()
        return self._lines[name]

    def recent_lines(self, name: str, most: int) -> Sequence[Record]:
        """Return the last records of a rotating file (`serve/seconds.jsonl`), up to `most` of them.
        The first call reads it; after a `refresh`, call it again.
        """
        if name not in self._recent:
            self._recent[name] = (RotatingReader(self.directory, name), [], most)
            self._read_recent(name)
        return self._recent[name][1]

    def _read_recent(self, name: str) -> None:
        reader, known, most = self._recent[name]
        added = reader.read()
        if added:  # a new list, since views may still use the old one
            self._recent[name] = (reader, [*known, *added][-most:], most)

    def replaced_file(self, name: str) -> Record:
        """Return the content of a file that is replaced as a whole (`serve/state.json`), as of the
        last `refresh`; empty if it is missing or unreadable.
        """
        if name not in self._states:
            self._states[name] = self._object(name) or {}
        return self._states[name]

    def names_in(self, directory: str) -> list[str]:
        """Return the names of the files in a directory of the record, such as `data` or `profiles`;
        cached until the next `refresh`.
        """
        if directory not in self._names:
            self._names[directory] = self.directory.file_names(directory)
        return self._names[directory]

    def _reader(self, name: str) -> LineReader:
        return self._readers.setdefault(name, LineReader(self.directory, name))

    def _object(self, name: str) -> JsonObject | None:
        """Return the content of a file that is replaced as a whole, read again only if it changed;
        None if it is missing or unreadable.
        """
        facts = self.directory.file_info(name)
        if facts is None:
            return None
        now = time.monotonic()
        seen = self._seen.get(name)
        since = seen[1] if seen is not None and seen[0] == facts else now
        # Object stores have times in whole seconds: two writes within one second look the same.
        if (
            seen is None
            or seen[0] != facts
            or (not facts.identity and seen[2] <= since + _SETTLED_S)
        ):
            try:
                value = (
                    json_values.parse_json(self.directory.read_range(name, 0, MAX_OBJECT_BYTES))
                    if facts.size <= MAX_OBJECT_BYTES
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

    def _add_sample(self, record: JsonObject) -> None:
        member = record.get("trial", record.get("rank"))
        has_usage = isinstance(record.get("usage"), dict) and isinstance(
            record.get("time"), (int, float)
        )
        if not isinstance(member, (int, str)) or not has_usage:
            return
        if len(self._samples) >= MAX_MEMBERS and str(member) not in self._samples:
            return
        samples = self._samples.setdefault(str(member), [])
        samples.append(record)
        if len(samples) > MAX_SAMPLES:
            del samples[1::2]


def _mapping(value: object) -> Record:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
