"""Run directories, found and summed up, with no engine running: what `runs`, `logs` and `status` know of a run.

A run whose outcome is not written is `running`, unless its record names a process of this machine that is gone: then it was `killed`.
Whether a process of another machine lives cannot be seen from here; `last_activity` tells when the run last wrote something.
"""

from __future__ import annotations

import errno
import importlib
import itertools
import json
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from syncline import settings
from syncline.cli.output import CommandError
from syncline.runs import Files, LocalFiles, RunRecord
from syncline.runs.directory import CHECKPOINTS_FILE, EVENTS_FILE, LOGS_DIRECTORY, METRICS_FILE, RUN_FILE

TAIL_BYTES = 65_536
"""So much of the end of `metrics.jsonl` is read for the last report; the whole file only where that is not enough."""


class Place(ABC):
    """A directory somewhere that can be listed. Implementations raise OSError for what cannot be read or removed."""

    path: str
    """As the user would name it."""
    files: Files
    """The same, for a `RunRecord`."""

    @abstractmethod
    def below(self, name: str) -> Place:
        """The directory of that name in this one, whether or not there is one."""

    @abstractmethod
    def directory_names(self) -> list[str]:
        """Names of the directories in this one; none where there is no such directory."""

    @abstractmethod
    def file_names(self, name: str) -> list[str]:
        """Names of the files in the directory `name` of this one; none where there is no such directory."""

    @abstractmethod
    def modified(self, name: str) -> float | None:
        """When the file was last written, in seconds since the epoch; None if there is none or it cannot be told."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Bytes of the file; 0 if there is none."""

    @abstractmethod
    def read_from(self, name: str, offset: int) -> bytes:
        """What the file holds from a byte on; nothing if there is no file."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove the file."""

    @abstractmethod
    def missing(self) -> list[Place]:
        """The directories that writing here would make: this one and those above it that do not exist, the innermost first."""

    @abstractmethod
    def remove_if_empty(self) -> None:
        """Remove the directory, unless something lies in it."""


class LocalPlace(Place):
    """A directory of this machine."""

    def __init__(self, path: str) -> None:
        self.path = settings.local_path(path)
        self.files = LocalFiles(self.path)

    def below(self, name: str) -> LocalPlace:
        """The directory of that name in this one."""
        return LocalPlace(os.path.join(self.path, name))

    def _entries(self, name: str) -> list[os.DirEntry[str]]:
        try:
            return sorted(os.scandir(os.path.join(self.path, name)), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def directory_names(self) -> list[str]:
        """Names of the directories in this one."""
        return [entry.name for entry in self._entries("") if entry.is_dir()]

    def file_names(self, name: str) -> list[str]:
        """Names of the files in the directory `name` of this one."""
        return [entry.name for entry in self._entries(name) if entry.is_file()]

    def modified(self, name: str) -> float | None:
        """When the file was last written."""
        try:
            return os.stat(os.path.join(self.path, name)).st_mtime
        except FileNotFoundError:
            return None

    def size(self, name: str) -> int:
        """Bytes of the file."""
        try:
            return os.stat(os.path.join(self.path, name)).st_size
        except FileNotFoundError:
            return 0

    def read_from(self, name: str, offset: int) -> bytes:
        """What the file holds from a byte on."""
        try:
            with open(os.path.join(self.path, name), "rb") as file:
                file.seek(offset)
                return file.read()
        except FileNotFoundError:
            return b""

    def remove(self, name: str) -> None:
        """Remove the file."""
        os.remove(os.path.join(self.path, name))

    def missing(self) -> list[Place]:
        """The directories that writing here would make."""
        above = [Path(self.path), *Path(self.path).parents]
        return [LocalPlace(str(path)) for path in itertools.takewhile(lambda path: not path.exists(), above)]

    def remove_if_empty(self) -> None:
        """Remove the directory, unless something lies in it."""
        try:
            os.rmdir(self.path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
                raise


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What the tables show of a run, and `--json` gives under these names."""

    name: str
    """The run's name."""
    path: str
    """Its directory or URI."""
    state: str
    """running, finished, errored, aborted, killed; or unreadable."""
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

    def as_json(self) -> dict[str, Any]:
        """The same as a dictionary."""
        return asdict(self)


def place(path: str | None) -> Place:
    """The directory or URI at `path`, by default the storage path of the settings. CommandError for an unknown kind of URI."""
    text = settings.storage_path() if path is None else path
    if "://" not in text:
        return LocalPlace(text)
    try:
        remote: Place = importlib.import_module("syncline.cli.remote_storage").ArrowPlace(text)
    except ValueError as error:
        raise CommandError(str(error)) from error
    return remote


def runs_below(storage: Place) -> list[RunSummary]:
    """The runs directly below a storage path, the latest first. CommandError if it cannot be listed."""
    try:
        names = storage.directory_names()
        # Anything may lie below a storage path: what has no run.json is no run.
        found = [summarise(run) for name in names if (run := storage.below(name)).modified(RUN_FILE) is not None or _has_record(run)]
    except OSError as error:
        raise CommandError(f"{storage.path} cannot be read ({error}): correct its permissions, or give another storage path") from error
    return sorted(found, key=lambda run: run.started or 0.0, reverse=True)


def _has_record(run: Place) -> bool:
    return run.size(RUN_FILE) > 0


def find_run(name: str | None, storage: Place) -> Place:
    """The run of that name below `storage`, or at that path or URI; without a name, the latest.

    Raises:
        CommandError: There is none; it names those that there are.
    """
    if name is not None:
        candidates = [place(name)] if "://" in name else [storage.below(name), LocalPlace(name)]
        for candidate in candidates:
            if candidate.modified(RUN_FILE) is not None or _has_record(candidate):
                return candidate
    runs = runs_below(storage)
    if name is None and runs:
        return storage.below(os.path.basename(runs[0].path))
    wanted = "There is no run" if name is None else f"There is no run {name!r}"
    known = f"the runs there are {', '.join(run.name for run in runs[:10])}" if runs else "that storage path has no runs"
    raise CommandError(f"{wanted} in {storage.path}; {known}: give the name of one, its path or URI, or --storage-path")


def summarise(run: Place, process_started: Callable[[int], float | None] | None = None) -> RunSummary:
    """Sum up the run in a directory. A damaged record gives a run that is `unreadable`, with the reason as its error.

    Args:
        run: The run directory.
        process_started: When the process of this machine with a number started, in seconds since the epoch; None if there is none.
    """
    name = os.path.basename(run.path)
    try:
        record = RunRecord(run.files)
        described, outcome, events = record.run(), record.outcome(), record.events()
        attempts = [event for event in events if event.get("event") == "attempt"]
        last = last_report(run)
        environment = described.get("environment") or {}
        moments = [run.modified(file) for file in (EVENTS_FILE, METRICS_FILE, CHECKPOINTS_FILE, RUN_FILE)]
        moments += [run.modified(f"{LOGS_DIRECTORY}/{file}") for file in run.file_names(LOGS_DIRECTORY)]
        return RunSummary(
            name=str(described.get("name", name)),
            path=run.path,
            state=_state(described, outcome, process_started or _process_started),
            started=described.get("started"),
            ended=outcome["time"] if outcome is not None else None,
            last_activity=max((moment for moment in moments if moment is not None), default=None),
            host=environment.get("hostname"),
            workers=len(attempts[-1].get("workers", ())) if attempts else None,
            attempts=len(attempts),
            reports=last["iteration"] + 1 if last else 0,
            metrics=last["metrics"] if last else {},
            checkpoints=sum(event.get("event") == "checkpoint" for event in events) and _kept(record.checkpoints()),
            error=outcome.get("error") if outcome is not None else None,
        )
    except (ValueError, KeyError, TypeError, OSError) as error:
        reason = str(error) if isinstance(error, (ValueError, OSError)) else f"its record has an unknown form ({error!r})"
        return RunSummary(
            name=name,
            path=run.path,
            state="unreadable",
            started=run.modified(RUN_FILE),
            ended=None,
            last_activity=None,
            host=None,
            workers=None,
            attempts=0,
            reports=0,
            metrics={},
            checkpoints=0,
            error=reason,
        )


def last_report(run: Place) -> dict[str, Any] | None:
    """The last whole line of `metrics.jsonl`, rank 0's of the last round where it is near the end."""
    size = run.size(METRICS_FILE)
    offset = max(0, size - TAIL_BYTES)
    lines = _whole_lines(run.read_from(METRICS_FILE, offset), cut=offset > 0)
    if not lines and offset > 0:
        lines = _whole_lines(run.read_from(METRICS_FILE, 0), cut=False)
    reports: list[dict[str, Any]] = [json.loads(line) for line in lines]
    if not reports:
        return None
    latest = max(report["iteration"] for report in reports)
    return min((report for report in reports if report["iteration"] == latest), key=lambda report: int(report["rank"]))


def _whole_lines(data: bytes, *, cut: bool) -> list[bytes]:
    """Lines that have their end; where the beginning was `cut` off, without the first."""
    return data.split(b"\n")[1 if cut else 0 : -1]


def _kept(checkpoints: Mapping[str, Any] | None) -> int:
    entries = (checkpoints or {}).get("checkpoints", ())
    return len(entries)


def _state(described: Mapping[str, Any], outcome: Mapping[str, Any] | None, process_started: Callable[[int], float | None]) -> str:
    if outcome is not None:
        return str(outcome["status"])
    environment = described.get("environment") or {}
    if environment.get("hostname") != socket.gethostname() or "pid" not in environment:
        return "running"
    began = process_started(environment["pid"])
    # A number is given again to another process some day: that one began after the run did.
    return "running" if began is not None and began <= described.get("started", 0.0) + 1.0 else "killed"


def _process_started(pid: int) -> float | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None
