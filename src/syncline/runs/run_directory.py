"""`RunDirectory`: writer of the record of one run.

Lines are appended to files that stay open: an append costs microseconds, and a kill loses at most
the line being written. For a remote filesystem, lines are collected in a temporary directory and
uploaded by `flush`. The cost of an upload does not grow with the record, and other threads can
write meanwhile. Files that are replaced as a whole are written to the remote filesystem directly.
Reports and samples are thinned, so that a record stays small however long a run lasts. A record has
one writing process at a time. Not covered: reading (`run_record.py`, `run.py`).
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Literal

from syncline.runs.environment import details, environment
from syncline.runs.json_values import JsonObject, Record, encode, plain
from syncline.runs.log_times import times_name
from syncline.runs.record_files import (
    SEALED_BYTES,
    Files,
    LineFile,
    Thinning,
    read_pieces,
    sealed_name,
)
from syncline.runs.secrets import masked

FORMAT = 1
"""Version of the format in the package docstring; readers refuse newer versions."""
RUN_FILE = "run.json"
ENVIRONMENT_FILE = "environment.json"
EVENTS_FILE = "events.jsonl"
METRICS_FILE = "metrics.jsonl"
LATEST_FILE = "latest.json"
WORKERS_FILE = "workers.jsonl"
TRIALS_FILE = "trials.jsonl"
SEARCH_FILE = "trials.json"
CHECKPOINTS_FILE = "checkpoints.json"
OUTCOME_FILE = "outcome.json"
ANNOTATIONS_FILE = "annotations.json"
LOGS_DIRECTORY = "logs"
DATA_DIRECTORY = "data"
SERVE_DIRECTORY = "serve"
PROFILES_DIRECTORY = "profiles"
TRACKERS_DIRECTORY = "trackers"
MEDIA_DIRECTORY = "media"
NAMES_OF_THE_RECORD = frozenset(
    {
        RUN_FILE,
        ENVIRONMENT_FILE,
        EVENTS_FILE,
        METRICS_FILE,
        LATEST_FILE,
        WORKERS_FILE,
        TRIALS_FILE,
        SEARCH_FILE,
        CHECKPOINTS_FILE,
        OUTCOME_FILE,
        ANNOTATIONS_FILE,
        LOGS_DIRECTORY,
        DATA_DIRECTORY,
        PROFILES_DIRECTORY,
        TRACKERS_DIRECTORY,
        MEDIA_DIRECTORY,
    }
)
"""Names that checkpoints may not have."""

RunKind = Literal["train", "tune", "data", "serve", "rl"]

_THINNED = {
    METRICS_FILE: Thinning(first_bytes=6_000_000),
    WORKERS_FILE: Thinning(first_bytes=1_000_000),
}
_EVENTS_BYTES = 4_000_000
"""Size of `events.jsonl` from which long events are written without their long fields, such as
tracebacks.
"""
_SHORT_EVENT_BYTES = 1_000
_SHORT_TEXT = 200
_LATEST_EVERY_S = 5.0
"""Seconds between two writes of the latest report when thinning drops it."""
_DETAILS_LIMIT_S = 10.0
"""Seconds that `close` waits for the details of the environment."""
_LOG_GROWTH = 1.1
"""Growth factor after which a log is uploaded again; it bounds the sum of all uploads to a small
multiple of the log's length.
"""

logger = logging.getLogger("syncline")


class RunDirectory:
    """Writer of one run's record. Opening an existing record appends to it. Thread-safe.

    Args:
        files: Storage of the record.
        clock: Returns the time of events in seconds since the epoch.
        staging: Parent of the temporary directory for remote records; best a directory that is
            cleared when the program is killed.
    """

    def __init__(
        self,
        files: Files,
        clock: Callable[[], float] = time.time,
        staging: str | os.PathLike[str] | None = None,
    ) -> None:
        self._files = files
        self._staging_parent = staging
        self._clock = clock
        self._lock = threading.RLock()
        self._open: dict[str, LineFile] = {}
        # Held for the whole of one upload; acquired before `_lock`.
        self._uploading = threading.Lock()
        # Number of uploaded pieces of each file of lines; they are never written again.
        self._sealed: dict[str, int] = {}
        self._unsent: set[str] = set()
        self._unsent_pieces: list[tuple[str, int]] = []
        self._logs: set[str] = set()
        # Inode and size of each part of a log at its last upload.
        self._sent: dict[str, tuple[int, int]] = {}
        self._staging: str | None = None
        self._sizes: dict[str, int] = {}  # bytes of each file of lines with its sealed pieces
        self._samples: dict[int | str, int] = {}
        # Rank 0's latest report if thinning dropped it and it is not written yet.
        self._latest: Record | None = None
        self._latest_at = 0.0
        self._started: float | None = None
        self._details: threading.Thread | None = None

    def write_run(
        self, name: str, config: Record, kind: RunKind = "train", *, detailed: bool = True
    ) -> None:
        """Write `run.json`: the configuration without secrets, the environment and the time.

        Args:
            name: Display name of the run.
            config: Configuration; any objects, converted by `json_values.plain`.
            kind: Kind of run.
            detailed: Also write `environment.json`, from a background thread.
        """
        self._started = self._clock()
        record = {"format": FORMAT, "kind": kind, "name": name, "started": self._started}
        self._files.write(
            RUN_FILE,
            encode({**record, "config": masked(plain(config)), "environment": environment()}),
        )
        if detailed:
            self.write_details_soon()

    def write_details_soon(self) -> None:
        """Write `environment.json` from a background thread."""
        self._details = threading.Thread(
            target=self._write_details, name="syncline-environment", daemon=True
        )
        self._details.start()

    def event(self, event: str, **fields: object) -> None:
        """Append a line to `events.jsonl`; drop its long fields once the file is large."""
        record = {"time": self._clock(), "event": event, **fields}
        line = encode(record)
        with self._lock:
            self._opened(EVENTS_FILE)
            if (
                len(line) > _SHORT_EVENT_BYTES
                and self._sizes[EVENTS_FILE] + len(line) > _EVENTS_BYTES
            ):
                line = encode({name: value for name, value in record.items() if _is_short(value)})
            self._add(EVENTS_FILE, line)

    def report(
        self,
        iteration: int,
        member: int | str,
        metrics: Record,
        time_s: float | None = None,
        *,
        wanted: bool = False,
    ) -> None:
        """Append a report to `metrics.jsonl` unless thinning drops it.

        Args:
            iteration: Number of the report, continued across restarts.
            member: Rank or trial ID of the reporter.
            metrics: Metrics as `syncline.train.metric_values.clean` returns them.
            time_s: Time of the report in seconds since the epoch; now by default.
            wanted: Keep the report as long as there is room; used for reports with a checkpoint.
        """
        when = self._clock() if time_s is None else time_s
        record = {
            "iteration": iteration,
            "time": when,
            _member_key(member): member,
            "metrics": metrics,
        }
        is_kept = self._append_some(METRICS_FILE, record, member, iteration, wanted=wanted)
        if member != 0:
            return
        self._latest = None if is_kept else record
        if is_kept:
            return
        # Remote records get it with the next flush. The range check survives a clock set back.
        if (
            self._files.local_path is not None
            and not 0 <= self._clock() - self._latest_at < _LATEST_EVERY_S
        ):
            with suppress(OSError):  # the next write or `close` raises it again
                self._write_latest()

    def sample(
        self,
        member: int | str,
        attempt: int,
        pid: int,
        usage: Record,
        spent: Mapping[str, float] | None = None,
    ) -> None:
        """Append a sample of one worker process to `workers.jsonl`.

        Args:
            member: Rank or trial ID.
            attempt: Number of the worker group.
            pid: Process ID.
            usage: Result of `usage.Sampler.sample`.
            spent: Seconds spent in each activity since the attempt began.
        """
        record: JsonObject = {
            "time": self._clock(),
            _member_key(member): member,
            "attempt": attempt,
            "pid": pid,
            "usage": usage,
        }
        if spent is not None:
            record["spent"] = spent
        with self._lock:
            number = self._samples[member] = self._samples.get(member, -1) + 1
        self._append_some(WORKERS_FILE, record, member, number)

    def line(self, name: str, record: Record) -> None:
        """Append a line to another file of the record, such as `trials.jsonl`."""
        self._append(name, record)

    def lines(self, name: str, records: Iterable[Record]) -> None:
        """Append several lines with one write. If there is no room, none is written."""
        lines = b"".join(map(encode, records))
        if lines:
            with self._lock:
                self._add(name, lines)

    def write_checkpoints(self, state: Record) -> None:
        """Replace `checkpoints.json`."""
        self._files.write(CHECKPOINTS_FILE, encode(state))

    def write_search(self, state: Record) -> None:
        """Replace `trials.json`, the progress of a search."""
        self._files.write(SEARCH_FILE, encode(state))

    def write_outcome(self, status: str, error: str | None = None, **fields: object) -> None:
        """Write `outcome.json`: the final status and the error text, if any."""
        # Clocks can be set back, so the start is stored to match an outcome with its start.
        start = {} if self._started is None else {"started": self._started}
        self._files.write(
            OUTCOME_FILE,
            encode({"status": status, "error": error, "time": self._clock(), **start, **fields}),
        )

    def log_path(self, name: str) -> str:
        """Return the local path of a log file in `logs/` and create its directory. For a remote
        record, `flush` uploads the file.
        """
        with self._lock:
            self._logs.add(f"{LOGS_DIRECTORY}/{name}")
            return self._local(f"{LOGS_DIRECTORY}/{name}")

    def flush(self) -> None:
        """Upload new lines, and logs that have grown. Do nothing for a local record.

        Raises:
            OSError: The upload failed; the next flush tries again.
        """
        self._flush(_LOG_GROWTH)

    def close(self) -> None:
        """Flush everything and close all files. Later calls open them again."""
        if self._details is not None:
            self._details.join(_DETAILS_LIMIT_S)
        self._write_latest()
        self._flush(1.0)
        self.abandon()

    def abandon(self) -> None:
        """Close all files and drop data that is not uploaded, because another writer owns the
        record now.
        """
        with self._uploading, self._lock:
            for file in self._open.values():
                file.close()
            self._open.clear()
            if self._staging is not None:
                shutil.rmtree(self._staging, ignore_errors=True)
                self._staging = None
                self._unsent.clear()
                self._unsent_pieces.clear()
                self._logs.clear()
                self._sent.clear()
                self._sizes.clear()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write_details(self) -> None:
        try:
            self._files.write(ENVIRONMENT_FILE, encode(details()))
        except OSError as error:  # the record is usable without the details
            logger.debug("Cannot write the details of the environment: %s", error)

    def _write_latest(self) -> None:
        latest = self._latest
        if latest is not None:
            self._latest_at = self._clock()
            self._files.write(LATEST_FILE, encode(latest))
            with self._lock:
                if self._latest is latest:
                    self._latest = None

    def _flush(self, log_growth: float) -> None:
        if self._files.local_path is not None:
            return
        with self._uploading:
            self._write_latest()
            with self._lock:
                names, logs = sorted(self._unsent), sorted(self._logs)
            for name in names:
                self._send_lines(name)
            for name in logs:  # workers write the logs
                self._send_log(name, log_growth)

    def _send_lines(self, name: str) -> None:
        with self._lock:
            if self._open[name].size_bytes > SEALED_BYTES:
                self._seal(name)
        while self._unsent_pieces:  # pieces precede the current file
            piece = sealed_name(*self._unsent_pieces[0])
            self._send(piece)
            os.unlink(self._local(piece))
            del self._unsent_pieces[0]
        with self._lock:  # lines added from here on belong to the next upload
            self._unsent.discard(name)
        try:
            self._send(name)
        except OSError:
            with self._lock:
                self._unsent.add(name)
            raise

    def _seal(self, name: str) -> None:
        """Move the content of a file of lines into a numbered piece and start the file anew."""
        path, number = self._local(name), self._sealed.get(name, 0) + 1
        os.rename(path, self._local(sealed_name(name, number)))
        self._open[name].close()
        self._open[name] = LineFile(path)
        self._sealed[name] = number
        self._unsent_pieces.append((name, number))

    def _send_log(self, name: str, growth: float) -> None:
        stem, extension = os.path.splitext(name)
        earlier = f"{stem}.1{extension}"
        path, path_before = self._local(name), self._local(earlier)
        if name not in self._sent and not os.path.exists(path_before) and os.path.exists(path):
            before = self._files.read(name)  # of an earlier start of the run
            if before:
                self._files.write(earlier, before)
        if os.path.exists(path_before):
            now = _identity(path_before)
            if now != self._sent.get(earlier):
                self._send(earlier)
                self._send_times(earlier)
                self._sent[earlier] = now
        if os.path.exists(path):
            now, (file, size) = _identity(path), self._sent.get(name, (0, 0))
            if now[0] != file or now[1] > size * growth or now[1] < size:
                self._sent[name] = now[0], self._send(name)
                self._send_times(name)

    def _send_times(self, log: str) -> None:
        """Upload the times of a log, if there are any."""
        times = times_name(log)
        if os.path.exists(self._local(times)):
            self._send(times)

    def _send(self, name: str) -> int:
        """Upload a file as it is now; return its length."""
        with open(self._local(name), "rb") as file:
            data = file.read()
        self._files.write(name, data)
        return len(data)

    def _append(self, name: str, record: Record) -> None:
        line = encode(record)
        with self._lock:
            self._add(name, line)

    def _append_some(
        self, name: str, record: Record, member: int | str, iteration: int, *, wanted: bool = False
    ) -> bool:
        """Append a line to a thinned file; return False if thinning drops it."""
        rule = _THINNED[name]
        with self._lock:
            self._opened(name)
            # Most reports of a long run are dropped; check before encoding.
            if not rule.keeps(
                member, iteration, line_bytes=0, size_bytes=self._sizes[name], wanted=wanted
            ):
                return False
            line = encode(record)
            if not rule.keeps(
                member, iteration, line_bytes=len(line), size_bytes=self._sizes[name], wanted=wanted
            ):
                return False
            self._add(name, line)
        return True

    def _add(self, name: str, line: bytes) -> None:
        self._opened(name).append(line)
        self._sizes[name] += len(line)
        self._unsent.add(name)

    def _opened(self, name: str) -> LineFile:
        file = self._open.get(name)
        if file is None:
            file = self._open[name] = self._open_to_append(name)
            self._sizes.setdefault(name, file.size_bytes)
        return file

    def _open_to_append(self, name: str) -> LineFile:
        path = self._local(name)
        if self._files.local_path is None and not os.path.exists(path):
            *sealed, current = read_pieces(self._files, name)
            self._sealed[name] = len(sealed)
            self._sizes[name] = sum(map(len, sealed)) + len(current)
            with open(path, "wb") as file:
                file.write(current)
        return LineFile(path)

    def _local(self, name: str) -> str:
        root = self._files.local_path
        if root is None:
            if self._staging is None:
                self._staging = tempfile.mkdtemp(prefix="syncline-run-", dir=self._staging_parent)
            root = self._staging
        path = os.path.join(root, name)
        parent = os.path.dirname(path)
        if not os.path.isdir(parent):  # to look is much cheaper than to try
            os.makedirs(parent, exist_ok=True)
        return path


def _member_key(member: int | str) -> str:
    """Return the key of a line that names its member."""
    return "trial" if isinstance(member, str) else "rank"


def _is_short(value: object) -> bool:
    return (
        value is None
        or isinstance(value, (int, float))
        or (isinstance(value, str) and len(value) <= _SHORT_TEXT)
    )


def _identity(path: str) -> tuple[int, int]:
    """Return the inode and the size of a file."""
    status = os.stat(path)
    return status.st_ino, status.st_size
