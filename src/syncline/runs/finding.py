"""Run directories, found and summed up, with no engine running: what tables of runs show.

A run whose outcome is not written is `running`, unless its record names a process of this machine
that is gone: then it was `killed`. Whether a process of another machine lives cannot be seen from
here; `last_activity` tells when the run last wrote something.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from syncline.runs import parsing, processes
from syncline.runs.directory import (
    CHECKPOINTS_FILE,
    DATA_DIRECTORY,
    EVENTS_FILE,
    FORMAT,
    LATEST_FILE,
    LOGS_DIRECTORY,
    METRICS_FILE,
    RUN_FILE,
    SEARCH_FILE,
    TRIALS_FILE,
)
from syncline.runs.lines import sealed_name
from syncline.runs.places import LocalPlace, Place, place
from syncline.runs.record import RunRecord

TAIL_BYTES = 65_536
"""So much of the end of `metrics.jsonl` is read for the last report, which is mostly enough."""
LONGEST_REPORT = 4 * 1024**2
"""Bytes of its line."""
LARGEST_RECORD = 24 * 1024**2
"""Bytes of the files that are read as a whole for a summary, all together; what syncline writes is
a few megabytes.
"""
_NAME_CHARACTERS = 300
_ERROR_CHARACTERS = 100_000
_MOST_METRICS = 1_000


_LOOKED_AT = frozenset({EVENTS_FILE, METRICS_FILE, CHECKPOINTS_FILE, TRIALS_FILE, RUN_FILE})
_REQUESTS = 16
"""So many at a time where listing runs takes a request for each."""


class NoSuchRunError(ValueError):
    """There is no run of that name."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What tables show of a run, and `--json` gives under these names."""

    name: str
    """The run's name."""
    path: str
    """Its directory or URI."""
    state: str
    """running, finished, errored, failed, aborted, killed; or unreadable."""
    started: float | None
    """When it was last started, in seconds since the epoch."""
    ended: float | None
    """When it ended; None while it runs and after a kill."""
    last_activity: float | None
    """When it last wrote something."""
    host: str | None
    """Where its controller is or was."""
    workers: int | None
    """How many workers the latest attempt has or had."""
    attempts: int
    """How often workers were started, over all starts of the run."""
    reports: int
    """How many rounds of reports there were."""
    metrics: Mapping[str, Any]
    """The last report."""
    checkpoints: int
    """How many checkpoints are kept."""
    error: str | None
    """How it failed, or why it cannot be read."""
    kind: str = "train"
    """train, tune or data."""
    trials: Mapping[str, int] | None = None
    """Of a search, how many trials have each status (PENDING, RUNNING, …), and under `expected` how
    many there will be, if that is known. Its `reports` are the results of all trials, and its
    `metrics` those of the best one, what is to get better first.
    """

    def as_json(self) -> dict[str, Any]:
        """The same as a dictionary."""
        return asdict(self)


def run_names(storage: Place) -> list[tuple[str, float]]:
    """Names of the runs in a directory and when each was last started, the latest first: nothing is
    read.

    Raises:
        OSError: The directory cannot be listed.
    """

    def started(name: str) -> float | None:
        try:
            return storage.modified(f"{name}/{RUN_FILE}")
        except OSError:  # another user's, closed to this one: the others are there all the same
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


def runs_below(storage: Place) -> list[RunSummary]:
    """Every run in a directory, the latest first; damaged ones are there with the reason.

    Raises:
        OSError: The directory cannot be listed.
    """
    found = [summarise(storage.below(name)) for name, _ in run_names(storage)]
    return sorted(found, key=lambda run: run.started or 0.0, reverse=True)


def find_run(name: str | None, storage: Place) -> Place:
    """The run of that name below `storage`, or at that path or URI; without a name, the latest.

    Raises:
        NoSuchRunError: There is none; it names those that there are.
    """
    if name is not None:
        for candidate in _candidates(name, storage):
            if candidate.facts(RUN_FILE) is not None:
                return candidate
    names = [known for known, _ in run_names(storage)]
    if name is None and names:
        return storage.below(names[0])
    wanted = "There is no run" if name is None else f"There is no run {name!r}"
    known = (
        f"the runs there are {', '.join(names[:10])}" if names else "that storage path has no runs"
    )
    raise NoSuchRunError(
        f"{wanted} in {storage.path}; {known}: give the name of one, its path or URI, or --storage-path"
    )


def summarise(run: Place) -> RunSummary:
    """Sum up the run in a directory. A damaged record gives a run that is `unreadable`, with the
    reason as its error. Whatever is in a record, its summary is small.
    """
    name = run.name
    try:
        record = RunRecord(_Limited(run))
        described, outcome, events = record.run(), record.outcome(), record.events()
        check_format(described)
        attempts = [event for event in events if event.get("event") == "attempt"]
        kind = str(described.get("kind", "train"))
        search = search_state(run) if kind == "tune" else None
        last = last_report(run) if search is None else None
        environment = described.get("environment") or {}
        checkpoints = sum(event.get("event") == "checkpoint" for event in events) and _kept(
            record.checkpoints()
        )
        return RunSummary(
            name=str(described.get("name", name))[:_NAME_CHARACTERS],
            path=run.path,
            state=state_of(described, outcome)[:_NAME_CHARACTERS],
            started=_number(described.get("started")),
            ended=_number(outcome["time"]) if outcome is not None else None,
            last_activity=last_activity(run),
            host=_text(environment.get("hostname"), _NAME_CHARACTERS),
            workers=len(attempts[-1].get("workers", ())) if attempts else None,
            attempts=len(attempts),
            reports=search.results
            if search is not None
            else int(last["iteration"]) + 1
            if last
            else 0,
            metrics=_some(
                search.best if search is not None else dict(last["metrics"]) if last else {}
            ),
            checkpoints=checkpoints,
            error=_text(outcome.get("error"), _ERROR_CHARACTERS) if outcome is not None else None,
            kind=kind[:_NAME_CHARACTERS],
            trials=search.trials if search is not None else None,
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
        return unreadable(run, reason)


def unreadable(run: Place, reason: str) -> RunSummary:
    """What is shown of a run whose record cannot be summed up."""
    return RunSummary(
        name=run.name,
        path=run.path,
        state="unreadable",
        started=_modified(run, RUN_FILE),
        ended=None,
        last_activity=None,
        host=None,
        workers=None,
        attempts=0,
        reports=0,
        metrics={},
        checkpoints=0,
        error=reason[:_ERROR_CHARACTERS],
    )


class _Limited:
    """The files of a run, of which no more is read than fits into memory as values. ValueError
    beyond that.
    """

    def __init__(self, run: Place) -> None:
        self._run = run
        self._room = LARGEST_RECORD
        self._values = parsing.MOST_VALUES

    @property
    def local_path(self) -> str | None:
        return self._run.local_path

    def read(self, name: str) -> bytes | None:
        facts = self._run.facts(name)
        if facts is None:
            return None
        data = self._run.read_from(name, 0, self._room + 1) if facts.size <= self._room else b""
        self._room -= max(len(data), facts.size)
        self._values -= parsing.weight(data)
        if self._room < 0 or self._values < 0:
            raise ValueError(f"{name} makes its record larger than those of syncline can be")
        return data

    def write(self, name: str, data: bytes) -> None:
        raise PermissionError(f"{name} of a run that is summed up is not written")


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """How far a search is."""

    trials: Mapping[str, int]
    """How many trials have each status; `expected`: how many there will be."""
    results: int
    """Of all trials."""
    best: Mapping[str, Any]
    """The metrics of the best trial, what is to get better first."""


def search_state(run: Place) -> SearchState:
    """What `trials.json` says; nothing where there is none yet, or none that can be read."""
    try:
        state = parsing.parsed(run.read(SEARCH_FILE) or b"{}")
    except ValueError:
        state = {}
    state = state if isinstance(state, dict) else {}
    trials, best = state.get("trials"), state.get("best")
    counts = {**(trials if isinstance(trials, dict) else {}), "expected": state.get("expected")}
    metrics = best.get("metrics") if isinstance(best, dict) else None
    return SearchState(
        trials={
            status: count
            for status, count in itertools.islice(counts.items(), _MOST_METRICS)
            if isinstance(count, int)
        },
        results=results if isinstance(results := state.get("results"), int) else 0,
        best=metrics if isinstance(metrics, dict) else {},
    )


def check_format(described: Mapping[str, Any]) -> None:
    """ValueError where a record is of a later version than this one reads."""
    version = described.get("format", FORMAT)
    if not isinstance(version, int) or version > FORMAT:
        raise ValueError(
            f"its record has the format {version!r:.40}, and this version of syncline reads up to {FORMAT}: use a newer one"
        )


def last_report(run: Place) -> dict[str, Any] | None:
    """Rank 0's last report where that is near the end, or else one of the last round."""
    lines = _last_lines(run, METRICS_FILE) or _last_lines(run, _newest_piece(run, METRICS_FILE))
    reports: list[dict[str, Any]] = [parsing.parsed(line) for line in lines]
    thinned = run.read(LATEST_FILE)
    if thinned is not None:
        reports.append(parsing.parsed(thinned))
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


def last_activity(run: Place) -> float | None:
    """When the run last wrote something that is looked at."""
    if run.local_path is None:  # where each look is a request
        moments = [facts.modified for name, facts in run.facts_in("").items() if name in _LOOKED_AT]
        directories = (LOGS_DIRECTORY, DATA_DIRECTORY)
        return max(
            [
                *moments,
                *(facts.modified for each in directories for facts in run.facts_in(each).values()),
            ],
            default=None,
        )
    found = [run.modified(file) for file in sorted(_LOOKED_AT)]
    found += [
        facts.modified
        for directory in (LOGS_DIRECTORY, DATA_DIRECTORY)
        for facts in run.facts_in(directory).values()
    ]
    return max((moment for moment in found if moment is not None), default=None)


def state_of(described: Mapping[str, Any], outcome: Mapping[str, Any] | None) -> str:
    """In which state a run is, from its `run.json` and its outcome."""
    if outcome is not None:
        return str(outcome["status"])
    environment = described.get("environment") or {}
    pid, marked = environment.get("pid"), environment.get("process")
    if environment.get("hostname") != socket.gethostname() or not isinstance(pid, int):
        return "running"
    is_alive = processes.is_alive(
        pid, marked if isinstance(marked, str) else None, described.get("started", 0.0)
    )
    return "running" if is_alive else "killed"


def _candidates(name: str, storage: Place) -> list[Place]:
    if "://" in name:
        return [place(name)]
    try:
        below = storage.below(name)
        # It was named by the user, so it may be a link.
        return [
            below if below.local_path is None else LocalPlace(below.local_path),
            LocalPlace(name),
        ]
    except ValueError:  # it is no name below the storage path
        return [LocalPlace(name)]


def _last_lines(run: Place, file: str) -> list[bytes]:
    size = run.size(file)
    offset = max(0, size - TAIL_BYTES)
    lines = _whole_lines(run.read_from(file, offset), cut=offset > 0) if size else []
    if lines or offset == 0:
        return lines
    offset = max(0, size - LONGEST_REPORT)
    return _whole_lines(run.read_from(file, offset), cut=offset > 0)


def _newest_piece(run: Place, file: str) -> str:
    """Name of the piece of a file of lines that was sealed last; of one that does not exist, if
    none was.
    """
    number = 1
    while run.facts(sealed_name(file, number + 1)) is not None:
        number += 1
    return sealed_name(file, number)


def _whole_lines(data: bytes, *, cut: bool) -> list[bytes]:
    """Lines that have their end; where the beginning was `cut` off, without the first."""
    return data.split(b"\n")[1 if cut else 0 : -1]


def _kept(checkpoints: Mapping[str, Any] | None) -> int:
    entries = (checkpoints or {}).get("checkpoints", ())
    return len(entries)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _text(value: Any, longest: int) -> str | None:
    return None if value is None else str(value)[:longest]


def _some(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics as they are where they are of the usual size; of more, numbers under names of a usual
    length.
    """
    if len(metrics) <= _MOST_METRICS and len(str(metrics)) <= _ERROR_CHARACTERS:
        return dict(metrics)
    kept = (
        (name, value)
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and len(name) <= _NAME_CHARACTERS
    )
    return dict(itertools.islice(kept, _MOST_METRICS))


def _modified(run: Place, name: str) -> float | None:
    try:
        return run.modified(name)
    except OSError:
        return None
