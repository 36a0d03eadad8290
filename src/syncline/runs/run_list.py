"""Lists and summaries of runs, read from their records without a running engine.

A run without an outcome is `running`, unless its record names a process of this machine that no
longer exists: then it was `killed`. A process of another machine cannot be checked from here;
`last_activity` shows when the run last wrote something.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, field

from syncline.records import dataclass
from syncline.runs import json_values
from syncline.runs.annotations import read_annotations
from syncline.runs.causes import cause_line, stall_text
from syncline.runs.environment import is_process_alive
from syncline.runs.experiments import EXPERIMENT_FILE, experiment_of
from syncline.runs.json_values import JsonObject, Record, finite
from syncline.runs.record_files import sealed_name
from syncline.runs.run_directory import (
    CHECKPOINTS_FILE,
    DATA_DIRECTORY,
    EVENTS_FILE,
    FORMAT,
    LATEST_FILE,
    LOGS_DIRECTORY,
    METRICS_FILE,
    RUN_FILE,
    SEARCH_FILE,
    SERVE_DIRECTORY,
    TRIALS_FILE,
)
from syncline.runs.run_record import RunRecord
from syncline.runs.run_storage import LocalDirectory, StorageDirectory, open_directory
from syncline.runs.secrets import masked
from syncline.suggestions import did_you_mean

TAIL_BYTES = 65_536
"""Bytes at the end of `metrics.jsonl` that are read to find the last report."""
MAX_REPORT_LENGTH = 4 * 1024**2
"""Maximum bytes of the last report's line."""
MAX_RECORD_BYTES = 24 * 1024**2
"""Maximum total bytes of the files that a summary reads as a whole. Records that syncline writes
have a few megabytes.
"""
_NAME_CHARACTERS = 300
_ERROR_CHARACTERS = 100_000
_EXPERIMENT_BYTES = 4 * 1024**2
_MAX_METRICS = 1_000
_MAX_PARAMETERS = 200
_MAX_PARAMETER_DEPTH = 4
_ERRORED = frozenset({"errored", "failed"})
"""Outcomes with the state `errored`; "failed" is in records of searches by earlier versions."""


_ACTIVITY_FILES = frozenset({EVENTS_FILE, METRICS_FILE, CHECKPOINTS_FILE, TRIALS_FILE, RUN_FILE})
_REQUESTS = 16
"""Concurrent requests when the list needs one request per run."""


class RunNotFoundError(ValueError):
    """No run has this name."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """Summary of a run, as tables show it and `--json` prints it."""

    name: str
    """Name of the run."""
    path: str
    """Directory or URI of the run."""
    state: str
    """running, finished, errored, aborted, killed, or unreadable."""
    started: float | None
    """Time of the last start, in seconds since the epoch."""
    ended: float | None = None
    """Time of the end; None while the run is running and after a kill."""
    last_activity: float | None = None
    """Time of the last write."""
    host: str | None = None
    """Host of the controller."""
    workers: int | None = None
    """Number of workers of the latest attempt."""
    attempts: int = 0
    """Number of attempts over all starts of the run."""
    reports: int = 0
    """Number of reports of each rank; for a search, results of all trials."""
    metrics: Record = field(default_factory=dict)
    """Metrics of the last report; for a search, those of the best trial, the optimized metric
    first.
    """
    checkpoints: int = 0
    """Number of checkpoints that are kept."""
    error: str | None = None
    """Error of the run, or the reason why its record cannot be read."""
    stalled_since: float | None = None
    """Time since which ranks of a running run wait in a collective operation, if they do."""
    kind: str = "train"
    """train, tune, data, serve or rl."""
    trials: Mapping[str, int] | None = None
    """For a search: number of trials by status (PENDING, RUNNING, …), and under `expected` the
    total number of trials if it is known.
    """
    tags: Sequence[str] = ()
    """Tags that users gave the run."""
    note: str = ""
    """Record that users wrote about the run."""
    archived: bool = False
    """True if lists leave the run out."""
    experiment: Record | None = None
    """Fields of the experiment if the run is one of `syncline run --metric`: verdict, value of the
    metric, best run before it, and others.
    """
    parameters: Record = field(default_factory=dict)
    """Numbers, texts and booleans in the configuration of the training function, by names such as
    `model/layers`; empty for a search.
    """

    @property
    def cause(self) -> str:
        """Line of the error that names its cause, or the duration of a stall; "" without one."""
        if self.stalled_since is not None:
            return stall_text(time.time() - self.stalled_since)
        return cause_line(self.error or "")

    def as_json(self) -> JsonObject:
        """Return the fields and the cause as a dictionary."""
        return {**asdict(self), "cause": self.cause}


def list_run_names(storage: StorageDirectory) -> list[tuple[str, float]]:
    """Return (name, time of the last start) of the runs in a directory, the latest first, without
    reading any file.

    Raises:
        OSError: The directory cannot be listed.
    """

    def started(name: str) -> float | None:
        try:
            return storage.modified(f"{name}/{RUN_FILE}")
        except OSError:  # another user's private run; list the others
            return None

    names = storage.directory_names()
    if storage.local_path is not None:
        moments = list(map(started, names))
    else:
        with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="syncline-runs") as pool:
            moments = list(pool.map(started, names))
    found = [
        (name, moment) for name, moment in zip(names, moments, strict=True) if moment is not None
    ]
    return sorted(found, key=lambda each: each[1], reverse=True)


def list_runs(storage: StorageDirectory) -> list[RunSummary]:
    """Return the summaries of all runs in a directory, the latest first, damaged runs included.

    Raises:
        OSError: The directory cannot be listed.
    """
    found = [summarize_run(storage.subdirectory(name)) for name, _ in list_run_names(storage)]
    return sorted(found, key=lambda run: run.started or 0.0, reverse=True)


def find_run(name: str | None, storage: StorageDirectory) -> StorageDirectory:
    """Return the run with this name below `storage`, or at this path or URI; by default the latest.

    Raises:
        RunNotFoundError: No such run exists; the message lists the existing runs.
    """
    if name is not None:
        for candidate in _candidates(name, storage):
            if candidate.file_info(RUN_FILE) is not None:
                return candidate
    names = [known for known, _ in list_run_names(storage)]
    if name is None and names:
        return storage.subdirectory(names[0])
    wanted = "There is no run" if name is None else f"There is no run {name!r}"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    known = (
        f"its runs are {', '.join(names[:10])}{more}"
        if names
        else "this storage path contains no runs"
    )
    raise RunNotFoundError(
        f"{wanted} in {storage.path}; {known}.{did_you_mean(name or '', names)} "
        "Pass the name, path or URI of a run, or set --storage-path."
    )


def summarize_run(run: StorageDirectory) -> RunSummary:
    """Return the summary of the run in a directory. The summary of a damaged record has the state
    `unreadable` and the reason as its error. Its size is bounded for any content of the record.
    """
    try:
        record = RunRecord(_BoundedFiles(run))
        described, outcome, events = record.run(), record.outcome(), record.events()
        check_format(described)
        attempts = [event for event in events if event.get("event") == "attempt"]
        checkpoints = sum(event.get("event") == "checkpoint" for event in events) and _kept(
            record.checkpoints()
        )
        return summary_of(
            run,
            described,
            outcome,
            attempts=len(attempts),
            workers=len(attempts[-1].get("workers", ())) if attempts else None,
            checkpoints=checkpoints,
            last=None if described.get("kind") == "tune" else last_report(run),
            stalled_since=stalled_since(events),
        )
    except (
        ValueError,
        ArithmeticError,
        LookupError,
        TypeError,
        AttributeError,
        OSError,
        RecursionError,
    ) as error:
        reason = (
            str(error)
            if isinstance(error, (ValueError, OSError))
            else f"its record has an unknown form ({error!r})"
        )
        return unreadable_summary(run, reason)


def summary_of(
    run: StorageDirectory,
    described: Record,
    outcome: Record | None,
    *,
    attempts: int,
    workers: int | None,
    checkpoints: int,
    last: Record | None,
    stalled_since: float | None = None,
) -> RunSummary:
    """Return the summary of a run, with texts and metrics of bounded size.

    Args:
        run: Directory of the run.
        described: Content of `run.json`.
        outcome: Outcome of the latest start; None without one.
        attempts: As in the summary.
        workers: As in the summary.
        checkpoints: As in the summary.
        last: Last report; None without one. A search has `trials.json` instead.
        stalled_since: As in the summary, regardless of the state of the run.
    """
    kind = str(described.get("kind", "train"))
    search = search_state(run) if kind == "tune" else None
    environment = described.get("environment") or {}
    annotations = read_annotations(run)
    state = state_of(described, outcome)[:_NAME_CHARACTERS]
    if search is not None:
        reports, metrics = search.results, search.best
    else:
        reports, metrics = (int(last["iteration"]) + 1, last["metrics"]) if last else (0, {})
    return RunSummary(
        name=str(described.get("name", run.name))[:_NAME_CHARACTERS],
        path=run.path,
        state=state,
        started=finite(described.get("started")),
        ended=finite(outcome["time"]) if outcome is not None else None,
        last_activity=last_activity(run),
        host=_text(environment.get("hostname"), _NAME_CHARACTERS),
        workers=workers,
        attempts=attempts,
        reports=reports,
        metrics=_bounded_metrics(metrics),
        checkpoints=checkpoints,
        error=_text(outcome.get("error"), _ERROR_CHARACTERS) if outcome is not None else None,
        stalled_since=stalled_since if state == "running" else None,
        kind=kind[:_NAME_CHARACTERS],
        trials=search.trials if search is not None else None,
        tags=annotations.tags,
        note=annotations.note,
        archived=annotations.archived,
        experiment=_experiment(run),
        parameters=parameters_of(described.get("config")),
    )


def _experiment(run: StorageDirectory) -> JsonObject | None:
    if run.local_path is None:
        return None
    try:
        found = experiment_of(run.read_range(EXPERIMENT_FILE, 0, _EXPERIMENT_BYTES))
    except OSError:
        return None
    if found is None or len(found.error) > _ERROR_CHARACTERS:
        return None
    return {**found.as_json(), "metrics": _bounded_metrics(found.metrics)}


def parameters_of(config: object) -> JsonObject:
    """Return the scalars in the configuration of a training function, nested ones as `a/b`, without
    secrets and of bounded number and length.
    """
    given = config.get("train_config") if isinstance(config, dict) else None
    found: JsonObject = {}
    _add_scalars(found, given if isinstance(given, dict) else {}, "", 0)
    return dict(masked(found))


def _add_scalars(found: JsonObject, config: Record, prefix: str, depth: int) -> None:
    for key, value in config.items():
        name = f"{prefix}{key}"[:_NAME_CHARACTERS]
        if isinstance(value, dict):
            if depth < _MAX_PARAMETER_DEPTH:
                _add_scalars(found, value, f"{name}/", depth + 1)
        elif len(found) >= _MAX_PARAMETERS:
            return
        elif isinstance(value, (bool, int, float)):
            found[name] = value
        elif isinstance(value, str):
            found[name] = value[:_NAME_CHARACTERS]


def unreadable_summary(run: StorageDirectory, reason: str) -> RunSummary:
    """Return the summary of a run whose record cannot be read."""
    return RunSummary(
        name=run.name,
        path=run.path,
        state="unreadable",
        started=_modified(run, RUN_FILE),
        error=reason[:_ERROR_CHARACTERS],
    )


class _BoundedFiles:
    """Reader of a run's files that bounds the memory which their values need; ValueError beyond."""

    def __init__(self, run: StorageDirectory) -> None:
        self._run = run
        self._room = MAX_RECORD_BYTES
        self._values = json_values.MAX_VALUES

    @property
    def local_path(self) -> str | None:
        return self._run.local_path

    def read(self, name: str) -> bytes | None:
        facts = self._run.file_info(name)
        if facts is None:
            return None
        data = self._run.read_range(name, 0, self._room + 1) if facts.size <= self._room else b""
        self._room -= max(len(data), facts.size)
        self._values -= json_values.count_values(data)
        if self._room < 0 or self._values < 0:
            raise ValueError(
                f"The record is larger than records of syncline can be: {name} exceeds the limit "
                f"of {MAX_RECORD_BYTES} bytes or {json_values.MAX_VALUES} values."
            )
        return data

    def write(self, name: str, data: bytes) -> None:
        raise PermissionError(f"{name} cannot be written: the run is open for reading only")


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """Progress of a search."""

    trials: Mapping[str, int]
    """Number of trials by status; `expected`: total number of trials."""
    results: int
    """Results of all trials."""
    best: Record
    """Metrics of the best trial, the optimized metric first."""


def search_state(run: StorageDirectory) -> SearchState:
    """Read `trials.json`; return an empty state if it is missing or damaged."""
    try:
        state = json_values.parse_json(run.read(SEARCH_FILE) or b"{}")
    except ValueError:
        state = {}
    state = state if isinstance(state, dict) else {}
    trials, best = state.get("trials"), state.get("best")
    counts = {**(trials if isinstance(trials, dict) else {}), "expected": state.get("expected")}
    metrics = best.get("metrics") if isinstance(best, dict) else None
    return SearchState(
        trials={
            status: count
            for status, count in itertools.islice(counts.items(), _MAX_METRICS)
            if isinstance(count, int)
        },
        results=results if isinstance(results := state.get("results"), int) else 0,
        best=metrics if isinstance(metrics, dict) else {},
    )


def check_format(described: Record) -> None:
    """Raise ValueError if a record has a newer format than this version reads."""
    version = described.get("format", FORMAT)
    if not isinstance(version, int) or version > FORMAT:
        raise ValueError(
            f"The record has format {version!r:.40}, but this version of syncline reads formats up "
            f"to {FORMAT}: use a newer version of syncline."
        )


def last_report(run: StorageDirectory) -> JsonObject | None:
    """Return rank 0's last report if it is near the end, otherwise one of the last round."""
    lines = _last_lines(run, METRICS_FILE) or _last_lines(run, _newest_piece(run, METRICS_FILE))
    reports: list[JsonObject] = [json_values.parse_json(line) for line in lines]
    thinned = run.read(LATEST_FILE)
    if thinned is not None:
        reports.append(json_values.parse_json(thinned))
    if not reports:
        return None
    of_first = [report for report in reports if report.get("rank") == 0]
    if of_first:
        return max(of_first, key=lambda report: report["iteration"])
    latest = max(report["iteration"] for report in reports)
    return min(
        (report for report in reports if report["iteration"] == latest),
        key=lambda report: str(report.get("rank", "")).zfill(9),
    )


def last_activity(run: StorageDirectory) -> float | None:
    """Return the time of the last write to the record's main files, logs and data."""
    directories = (LOGS_DIRECTORY, DATA_DIRECTORY, SERVE_DIRECTORY)
    if run.local_path is None:  # list the directory: each lookup of a file is a request
        moments = [
            facts.modified for name, facts in run.file_infos("").items() if name in _ACTIVITY_FILES
        ]
    else:
        found = (run.modified(file) for file in _ACTIVITY_FILES)
        moments = [moment for moment in found if moment is not None]
    moments += [facts.modified for each in directories for facts in run.file_infos(each).values()]
    return max(moments, default=None)


def stalled_since(events: Sequence[Record]) -> float | None:
    """Return the time since which ranks are stalled according to the events of a run."""
    since: float | None = None
    for event in events:
        if event.get("event") == "stalled":
            since = finite(event.get("since"))
        elif event.get("event") in ("resumed", "started", "attempt", "failure"):
            since = None
    return since


def state_of(described: Record, outcome: Record | None) -> str:
    """Return the state of a run from its `run.json` and its outcome."""
    if outcome is not None:
        status = str(outcome["status"])
        return "errored" if status in _ERRORED else status
    environment = described.get("environment") or {}
    pid, marked = environment.get("pid"), environment.get("process")
    if environment.get("hostname") != socket.gethostname() or not isinstance(pid, int):
        return "running"
    is_alive = is_process_alive(
        pid, marked if isinstance(marked, str) else None, finite(described.get("started")) or 0.0
    )
    return "running" if is_alive else "killed"


def _candidates(name: str, storage: StorageDirectory) -> list[StorageDirectory]:
    if "://" in name:
        return [open_directory(name)]
    try:
        below = storage.subdirectory(name)
        # The user named it, so links may be followed.
        return [
            below if below.local_path is None else LocalDirectory(below.local_path),
            LocalDirectory(name),
        ]
    except ValueError:  # not a name below the storage path
        return [LocalDirectory(name)]


def _last_lines(run: StorageDirectory, file: str) -> list[bytes]:
    size = run.size(file)
    offset = max(0, size - TAIL_BYTES)
    lines = _whole_lines(run.read_range(file, offset), cut=offset > 0) if size else []
    if lines or offset == 0:
        return lines
    offset = max(0, size - MAX_REPORT_LENGTH)
    return _whole_lines(run.read_range(file, offset), cut=offset > 0)


def _newest_piece(run: StorageDirectory, file: str) -> str:
    """Return the name of the last sealed piece of a file of lines, or the name that the first
    piece would have.
    """
    number = 1
    while run.file_info(sealed_name(file, number + 1)) is not None:
        number += 1
    return sealed_name(file, number)


def _whole_lines(data: bytes, *, cut: bool) -> list[bytes]:
    """Return the complete lines; if the beginning was `cut` off, without the first one."""
    return data.split(b"\n")[1 if cut else 0 : -1]


def _kept(checkpoints: Record | None) -> int:
    entries = (checkpoints or {}).get("checkpoints", ())
    return len(entries)


def _text(value: object, longest: int) -> str | None:
    return None if value is None else str(value)[:longest]


def _bounded_metrics(metrics: Record) -> JsonObject:
    """Return the metrics; if they are too many or too long, only numbers under short names."""
    if len(metrics) <= _MAX_METRICS and len(str(metrics)) <= _ERROR_CHARACTERS:
        return dict(metrics)
    kept = (
        (name, value)
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and len(name) <= _NAME_CHARACTERS
    )
    return dict(itertools.islice(kept, _MAX_METRICS))


def _modified(run: StorageDirectory, name: str) -> float | None:
    try:
        return run.modified(name)
    except OSError:
        return None
