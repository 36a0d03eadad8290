"""Files that hold the records of executions: journals, the thread that writes them, and the removal
of old records.

A disk that does not respond blocks only the writer thread; jobs beyond a limit are dropped.

Old records are removed when a new one begins. A directory is removed only if nobody else can have
created or changed it: its name and its `run.json` identify it as a record, its execution has ended,
and it holds only files that executions write. Symbolic links are not followed, and several programs
may do this concurrently. Not covered: records of killed programs, which stay.
"""

from __future__ import annotations

import json
import logging
import math
import os
import queue
import re
import secrets
import socket
import stat
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any, Literal, TypeAlias

from syncline.records import dataclass
from syncline.runs import Files, LocalFiles, RunDirectory
from syncline.runs.json_values import encode
from syncline.runs.secrets import masked_text

logger = logging.getLogger("syncline")

_MAX_QUEUED_JOBS = 2000
"""Queued jobs above which new ones are dropped."""

_IDLE_S = 3.0
"""Seconds after which an idle thread ends: users may count their threads."""


class BackgroundWriter:
    """Thread that runs jobs in order. It starts with a job and ends after some idle time.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def post(self, job: Callable[[], None]) -> None:
        """Run a job without waiting for it. Its errors are logged."""
        if self._jobs.qsize() >= _MAX_QUEUED_JOBS:
            return
        self._put(job)

    def drain(self, limit_s: float) -> bool:
        """Wait up to `limit_s` seconds for all jobs so far; return True if they are done."""
        if self._thread is None:
            return True
        done = threading.Event()
        self._put(done.set)
        return done.wait(limit_s)

    def _put(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="syncline-data-records", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:  # a later job starts another thread
                    if self._jobs.empty():
                        self._thread = None
                        return
                continue
            try:
                job()
            except Exception:  # a record must not end anything
                logger.debug("an execution could not be recorded", exc_info=True)


def background_writer() -> BackgroundWriter:
    """Return the writer of this process."""
    return _writer


UNNAMED = "dataset"
"""Name of the records of an unnamed dataset."""
_MAX_NAME_LENGTH = 60
_WAIT_AT_END_S = 0.1
"""Seconds to wait for the last line of a pass: its process may be killed immediately afterwards."""
_UPLOAD_EVERY_S = 30.0
"""Seconds between two uploads of a remote file during a pass."""

Outcome: TypeAlias = Literal["finished", "stopped", "errored"]
"""End of an execution: at the last row, because the consumer stopped, or with an error."""

MIN_INTERVAL_S = 2.0
"""Minimum time between two lines."""
_FIRST_BYTES = 64_000
"""Initial allowance, granted again each time that the age plus a minute doubles; 1.3 MB a year."""
_DOUBLING_S = 60.0
_MIN_LINE_BYTES = 1500
"""Minimum cost of a line: curves can only show hundreds of samples."""
_MAX_ERROR_LENGTH = 2000


class GrowthLimit:
    """Decides when a file may get another line.

    A file grows with the logarithm of its age: a line every two seconds in the first minutes, about
    one a minute after an hour, and one in half an hour after a day. Used by one thread at a time;
    approximate for several.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._last_at = -math.inf
        self._spent = 0
        self._typical = 0

    @property
    def is_unused(self) -> bool:
        """True if nothing was written so far."""
        return self._spent == 0

    def permits(self, lines: int = 1) -> bool:
        """Return True if `lines` more lines as long as the last one may be written now."""
        now = self._clock()
        if now < self._last_at + MIN_INTERVAL_S:
            return False
        allowed = _FIRST_BYTES * (1 + math.log2(1 + (now - self._began) / _DOUBLING_S))
        return self._spent + lines * self._typical <= allowed

    def add(self, size_bytes: int) -> None:
        """Count a written line."""
        self._typical = max(size_bytes, _MIN_LINE_BYTES)
        self._spent += self._typical
        self._last_at = self._clock()


def error_text(error: BaseException) -> str:
    """Format an error without secrets."""
    return masked_text(shortened(f"{type(error).__name__}: {error}", _MAX_ERROR_LENGTH))


def shortened(text: str, limit: int) -> str:
    """Truncate a text to `limit` characters."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class Journal(ABC):
    """A file of JSON lines. Thread-safe.

    `write` and `next_number` do not wait. Only the writer's thread calls `_put`, whose errors end
    the journal.
    """

    is_shared: bool
    """True if several executions write to it: the passes of a training run."""

    def __init__(self, dataset: str, *, by: BackgroundWriter | None = None) -> None:
        self.dataset = dataset
        self.growth_limit = GrowthLimit()
        self._writer = by or background_writer()
        self._numbers = count()
        self._is_broken = False

    def next_number(self) -> int:
        """Return the number of a new pass."""
        return next(self._numbers)

    def write(self, line: Mapping[str, Any]) -> None:
        """Write a line."""
        data = encode(line)
        self.growth_limit.add(len(data))
        self._post(partial(self._put, line, data))

    @abstractmethod
    def details(self) -> dict[str, str | int]:
        """Return further values for the first line of a pass."""

    @abstractmethod
    def end(self, outcome: Outcome, error: BaseException | None) -> None:
        """End the lines of an execution; wait at most `_WAIT_AT_END_S` for a disk."""

    @abstractmethod
    def _put(self, line: Mapping[str, Any], data: bytes) -> None:
        """Write a line; `data` is its encoded form."""

    def _post(self, job: Callable[[], None]) -> None:
        def done() -> None:
            if self._is_broken:
                return
            try:
                job()
            except Exception as error:
                self._is_broken = True
                logger.debug(
                    "executions of %s are no longer recorded: %s", self.dataset or UNNAMED, error
                )

        self._writer.post(done)


class RunDirectoryJournal(Journal):
    """A run directory below the storage path, created with the first line.

    Args:
        dataset: Name of the dataset.
        storage: Local storage path.
        config: Returns the configuration for `run.json`.
        by: Writer; None for that of the process.
    """

    is_shared = False

    def __init__(
        self,
        dataset: str,
        storage: str,
        config: Callable[[], Mapping[str, Any]],
        *,
        by: BackgroundWriter | None = None,
    ) -> None:
        super().__init__(dataset, by=by)
        self._config = config
        self._storage = storage
        self._token = secrets.token_hex(4)
        self._run: RunDirectory | None = None

    def details(self) -> dict[str, str | int]:
        return {}  # `run.json` has them

    def end(self, outcome: Outcome, error: BaseException | None) -> None:
        self._post(partial(self._close, outcome, None if error is None else error_text(error)))

    def _put(self, line: Mapping[str, Any], data: bytes) -> None:
        if self._run is None:
            self._run = self._begin()
        self._run.line(f"data/{file_name(self.dataset)}-{self._token}.jsonl", line)

    def _begin(self) -> RunDirectory:
        name = (
            f"{PREFIX}{file_name(self.dataset)}_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{self._token}"
        )
        directory = os.path.join(self._storage, name)
        os.makedirs(self._storage, exist_ok=True)
        os.mkdir(directory)  # fails if it exists: the name belongs to this execution
        run = RunDirectory(LocalFiles(directory))
        run.write_run(name, self._config(), kind="data", detailed=False)
        run.event("started", dataset=self.dataset)
        self._remove_old()
        return run

    def _remove_old(self) -> None:
        try:
            remove_old_records(self._storage)
        except OSError as error:
            logger.debug(
                "old records of executions in %s could not be removed: %s", self._storage, error
            )

    def _close(self, outcome: Outcome, error: str | None) -> None:
        if self._run is not None:
            status = "errored" if outcome == "errored" else "finished"
            self._run.event(status, how=outcome)
            self._run.write_outcome(status, error, ended=outcome)
            self._run.close()


class SharedFileJournal(Journal):
    """A file in a training run's directory: the passes of this process over one dataset."""

    is_shared = True

    def __init__(
        self,
        target: RecordTarget,
        *,
        by: BackgroundWriter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(target.dataset, by=by)
        self._files = target.files
        self._name = f"data/{file_name(target.dataset)}-{secrets.token_hex(4)}.jsonl"
        self._run = RunDirectory(target.files) if target.files.local_path is not None else None
        # Remote files are written as a whole. This one is small, so keep it in memory rather than
        # on the local disk, where a killed process would leave it.
        self._lines: list[bytes] = []
        self._clock = clock
        self._uploaded_at = clock()

    @staticmethod
    def shared(target: RecordTarget) -> SharedFileJournal:
        """Return this process's journal for a target."""
        return _shared_files.setdefault(
            target.key, _shared_files.get(target.key) or SharedFileJournal(target)
        )

    def details(self) -> dict[str, str | int]:
        return {"pid": os.getpid(), "hostname": socket.gethostname()}

    def end(self, outcome: Outcome, error: BaseException | None) -> None:
        self._post(self._upload)
        self._writer.drain(_WAIT_AT_END_S)

    def _put(self, line: Mapping[str, Any], data: bytes) -> None:
        if self._run is not None:
            self._run.line(self._name, line)
            return
        self._lines.append(data)
        if self._clock() >= self._uploaded_at + _UPLOAD_EVERY_S:
            self._upload()

    def _upload(self) -> None:
        if self._run is None:
            self._uploaded_at = self._clock()
            self._files.write(self._name, b"".join(self._lines))


def file_name(name: str) -> str:
    """Return a display name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name)[:_MAX_NAME_LENGTH].strip(".-") or UNNAMED


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordTarget:
    """Directory of a training run that records the executions of a dataset.

    Part of the dataset's settings, and as picklable as `files`.
    """

    files: Files
    """The run directory."""
    dataset: str
    """The run's name for the dataset; part of file names."""
    key: str
    """Equal in all copies of this target and in no other target; identifies its journal."""

    def __deepcopy__(self, memo: dict[int, Any]) -> RecordTarget:
        return self  # some filesystems cannot be copied


PREFIX = "data_"
"""Prefix of the names of record directories."""
MAX_RECORDS = 200
"""Records kept per storage path."""

_NAME = re.compile(rf"{PREFIX}[A-Za-z0-9.-]+_(\d{{4}}-\d\d-\d\d_\d\d-\d\d-\d\d)_[0-9a-f]{{4,16}}")
_FILES = frozenset({"run.json", "environment.json", "events.jsonl", "outcome.json"})
_LINES = re.compile(r"[A-Za-z0-9.-]+\.jsonl")
_MAX_JSON_BYTES = 1_000_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_old_records(storage: str, kept: int = MAX_RECORDS) -> int:
    """Remove the removable records beyond the `kept` newest ones; return their number.

    Raises:
        OSError: The storage path cannot be read.
    """
    descriptor = os.open(storage, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return sum(_remove(descriptor, name) for name in surplus(_directories(descriptor), kept))
    finally:
        os.close(descriptor)


def surplus(names: list[str], kept: int) -> list[str]:
    """Return the names of the records that are older than the `kept` newest ones."""
    stamped = sorted((found[1], name) for name in names if (found := _NAME.fullmatch(name)))
    return [name for _, name in stamped[: max(0, len(stamped) - kept)]]


def _directories(parent: int) -> list[str]:
    with os.scandir(parent) as entries:
        return [
            entry.name
            for entry in entries
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False)
        ]


def _remove(parent: int, name: str) -> bool:
    """Remove a record if it may be removed; stop if another process changes it at the same time."""
    try:
        run = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            if not _is_removable(run):
                return False
            _empty(run)
        finally:
            os.close(run)
        os.rmdir(name, dir_fd=parent)
    except OSError:
        return False
    return True


def _is_removable(run: int) -> bool:
    described, outcome = _object(run, "run.json"), _object(run, "outcome.json")
    if described.get("kind") != "data" or not outcome.get("status"):
        return False
    for name in os.listdir(run):
        if name == "data":
            data = os.open(name, _DIRECTORY, dir_fd=run)
            try:
                if not all(
                    _LINES.fullmatch(each) and _is_file(data, each) for each in os.listdir(data)
                ):
                    return False
            finally:
                os.close(data)
        elif name not in _FILES or not _is_file(run, name):
            return False
    return True


def _empty(run: int) -> None:
    """Delete the files of a record.

    Delete the files that identify an ended record last: after a kill, the next call continues.
    """
    names = set(os.listdir(run))
    if "data" in names:
        data = os.open("data", _DIRECTORY, dir_fd=run)
        try:
            for name in filter(_LINES.fullmatch, os.listdir(data)):
                os.unlink(name, dir_fd=data)
        finally:
            os.close(data)
        os.rmdir("data", dir_fd=run)
    last = ("outcome.json", "run.json")
    for name in [*(names & _FILES - {*last}), *last]:
        os.unlink(name, dir_fd=run)


def _object(run: int, name: str) -> dict[str, Any]:
    """Return a JSON file of the record; empty if it is missing or invalid."""
    try:
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=run
        )
    except OSError:
        return {}
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return {}
        try:
            value = json.loads(file.read(_MAX_JSON_BYTES))
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _is_file(directory: int, name: str) -> bool:
    return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)


_writer = BackgroundWriter()
_shared_files: dict[str, SharedFileJournal] = {}


def _after_fork_in_child() -> None:
    global _writer
    _writer = BackgroundWriter()  # the child has no threads of the parent
    _shared_files.clear()  # these are files of the parent


os.register_at_fork(after_in_child=_after_fork_in_child)
