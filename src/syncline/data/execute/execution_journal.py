"""`BackgroundWriter`: the thread that writes records, one per process; whoever records only hands it what is
to be done.

A disk that does not answer holds up this thread alone. What it cannot do is dropped: so is what
comes while too much waits already.
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
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Literal, TypeAlias

from syncline.runs import Files, LocalFiles, RunDirectory
from syncline.runs.json_values import encode
from syncline.runs.secrets import masked_text

logger = logging.getLogger("syncline")

_MOST_WAITING = 2000
"""So many jobs wait at once; a disk that answers leaves none waiting."""

_IDLE_S = 3.0
"""A thread without work ends after so long: programs may count their threads."""


class BackgroundWriter:
    """Does one job after the other, in a thread that starts with the first one and ends when there
    is none for a while.

    May be used from several threads.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def post(self, job: Callable[[], None]) -> None:
        """Have something done; returns at once. What it raises is logged."""
        if self._jobs.qsize() >= _MOST_WAITING:
            return
        self._put(job)

    def drain(self, limit_s: float) -> bool:
        """Wait until all that was posted is done, for so long at most; whether it is."""
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
                with self._lock:  # whoever puts something in then starts another thread
                    if self._jobs.empty():
                        self._thread = None
                        return
                continue
            try:
                job()
            except Exception:  # a record must not end anything
                logger.debug("an execution could not be recorded", exc_info=True)


def background_writer() -> BackgroundWriter:
    """That of this process."""
    return _writer


NAMELESS = "dataset"
"""What records of a dataset without a name are called."""
_LONGEST_NAME = 60
_WAIT_AT_END_S = 0.1
"""A worker may be killed as soon as a pass has ended, so its last line is waited for; where that
takes longer, it may be missing.
"""
_UPLOAD_EVERY_S = 30.0
"""How often a file that lies elsewhere is written anew during a pass."""


Ended: TypeAlias = Literal["finished", "stopped", "errored"]
"""How an execution has ended: at its last row, because the program wanted no more, or with an
error.
"""
LEAST_INTERVAL_S = 2.0
"""Time between two lines, at least."""

_FIRST_BYTES = 64_000
"""So much at once, and so much again each time that the age (plus a minute) has doubled: 1.3 MB in
a year.
"""

_DOUBLING_S = 60.0

_LEAST_COST = 1500
"""Short lines count as that many bytes: hundreds of samples are all that curves can show."""
_LONGEST_ERROR = 2000


class Pace:
    """What one file may hold by when. For one thread at a time; approximate for several."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._last_at = -math.inf
        self._spent = 0
        self._typical = 0

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was written yet."""
        return self._spent == 0

    def permits(self, lines: int = 1) -> bool:
        """Whether so many more lines, each about as long as the last one, may be written now."""
        now = self._clock()
        if now < self._last_at + LEAST_INTERVAL_S:
            return False
        allowed = _FIRST_BYTES * (1 + math.log2(1 + (now - self._began) / _DOUBLING_S))
        return self._spent + lines * self._typical <= allowed

    def spend(self, size_bytes: int) -> None:
        """A line was written, permitted or not."""
        self._typical = max(size_bytes, _LEAST_COST)
        self._spent += self._typical
        self._last_at = self._clock()


def error_text(error: BaseException) -> str:
    """An error for people, without secrets."""
    return masked_text(shortened(f"{type(error).__name__}: {error}", _LONGEST_ERROR))


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class Journal(ABC):
    """A file of lines. `write` and `next_number` return at once; what is to be written is done by
    the writer, which alone calls `_put`.
    """

    is_shared: bool
    """Whether several executions share it, the passes of a training run."""

    def __init__(self, dataset: str, *, by: BackgroundWriter | None = None) -> None:
        self.dataset = dataset
        self.pace = Pace()
        self._writer = by or background_writer()
        self._numbers = count()
        self._is_broken = False

    def next_number(self) -> int:
        """The number of a pass that begins."""
        return next(self._numbers)

    def write(self, line: Mapping[str, Any]) -> None:
        """One more line."""
        data = encode(line)
        self.pace.spend(len(data))
        self._post(partial(self._put, line, data))

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """More about a pass, for its first line."""

    @abstractmethod
    def end(self, ended: Ended, error: BaseException | None) -> None:
        """The lines of an execution are complete. Waits for a disk for a tenth of a second at
        most.
        """

    @abstractmethod
    def _put(self, line: Mapping[str, Any], data: bytes) -> None:
        """Write a line, of which `data` is the text. Whatever it raises ends the journal."""

    def _post(self, job: Callable[[], None]) -> None:
        def done() -> None:
            if self._is_broken:
                return
            try:
                job()
            except Exception as error:
                self._is_broken = True
                logger.debug(
                    "executions of %s are not recorded any more: %s",
                    self.dataset or NAMELESS,
                    error,
                )

        self._writer.post(done)


class OwnRun(Journal):
    """A run directory below the storage path, made when the first line is written.

    Args:
        program: What is executed.
        storage: The storage path, on this machine.
        by: Writes.
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

    def facts(self) -> dict[str, Any]:
        """None: `run.json` has them."""
        return {}

    def end(self, ended: Ended, error: BaseException | None) -> None:
        """The outcome. The writer has done it when the program ends, at the latest."""
        self._post(partial(self._close, ended, None if error is None else error_text(error)))

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
        os.mkdir(directory)  # never one that is there: the name is this execution's
        run = RunDirectory(LocalFiles(directory))
        run.write_run(name, self._config(), kind="data", detailed=False)
        run.event("started", dataset=self.dataset)
        self._remove_old()
        return run

    def _remove_old(self) -> None:
        try:
            remove_old(self._storage)
        except OSError as error:
            logger.debug(
                "old records of executions in %s could not be removed: %s", self._storage, error
            )

    def _close(self, ended: Ended, error: str | None) -> None:
        if self._run is not None:
            self._run.event("errored" if ended == "errored" else "finished", how=ended)
            self._run.write_outcome(
                "errored" if ended == "errored" else "finished", error, ended=ended
            )
            self._run.close()


class RunFile(Journal):
    """A file in the directory of a training run: all passes of this process over one dataset."""

    is_shared = True

    def __init__(
        self,
        place: RecordPlace,
        *,
        by: BackgroundWriter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(place.dataset, by=by)
        self._files = place.files
        self._name = f"data/{file_name(place.dataset)}-{secrets.token_hex(4)}.jsonl"
        self._run = RunDirectory(place.files) if place.files.local_path is not None else None
        # Elsewhere files are written as a whole. This one is never large, and so need not lie on
        # this machine's disk besides, where a process that is killed would leave it.
        self._lines: list[bytes] = []
        self._clock = clock
        self._uploaded_at = clock()

    @staticmethod
    def shared(place: RecordPlace) -> RunFile:
        """The file of this process for a place."""
        return _shared_files.setdefault(place.key, _shared_files.get(place.key) or RunFile(place))

    def facts(self) -> dict[str, Any]:
        """Which process it is."""
        return {"pid": os.getpid(), "hostname": socket.gethostname()}

    def end(self, ended: Ended, error: BaseException | None) -> None:
        """What lies elsewhere is written there."""
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
    """A name for people as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name)[:_LONGEST_NAME].strip(".-") or NAMELESS


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordPlace:
    """A run directory, and the name that the run has for the dataset. Part of a dataset's settings,
    and as picklable as `files`.
    """

    files: Files
    """The run directory."""
    dataset: str
    """Names the files, and is shown."""
    key: str
    """The same in all copies of this place and in no other place: a process keeps one file for
    it.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> RecordPlace:
        return self  # filesystems need not know how to be copied


PREFIX = "data_"
"""How the names of these run directories begin."""
KEPT = 200
"""So many are kept in one storage path."""

_NAME = re.compile(rf"{PREFIX}[A-Za-z0-9.-]+_(\d{{4}}-\d\d-\d\d_\d\d-\d\d-\d\d)_[0-9a-f]{{4,16}}")
_FILES = frozenset({"run.json", "environment.json", "events.jsonl", "outcome.json"})
_LINES = re.compile(r"[A-Za-z0-9.-]+\.jsonl")
_LARGEST = 1_000_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_old(storage: str, kept: int = KEPT) -> int:
    """Remove records below the storage path that are older than the `kept` newest ones, as far as
    they may go; how many went.

    Raises:
        OSError: The storage path cannot be read.
    """
    descriptor = os.open(storage, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return sum(_remove(descriptor, name) for name in surplus(_directories(descriptor), kept))
    finally:
        os.close(descriptor)


def surplus(names: list[str], kept: int) -> list[str]:
    """Of the names of directories those of records that are older than the `kept` newest ones.
    Pure.
    """
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
    """Remove one record if it may go. What somebody else does at the same time ends this, and the
    next one goes on.
    """
    try:
        run = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            if not _may_go(run):
                return False
            _empty(run)
        finally:
            os.close(run)
        os.rmdir(name, dir_fd=parent)
    except OSError:
        return False
    return True


def _may_go(run: int) -> bool:
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
    """What tells that this is a record that has ended goes last: after a kill the rest of it goes
    the next time.
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
    """A file of the record; empty if there is none, or no such."""
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
            value = json.loads(file.read(_LARGEST))
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _is_file(directory: int, name: str) -> bool:
    return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)


_writer = BackgroundWriter()
_shared_files: dict[str, RunFile] = {}


def _after_fork_in_child() -> None:
    global _writer
    _writer = BackgroundWriter()  # threads stay with the parent
    _shared_files.clear()  # those are the parent's


os.register_at_fork(after_in_child=_after_fork_in_child)
