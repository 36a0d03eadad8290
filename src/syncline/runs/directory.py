"""`RunDirectory`: writes the record of one run.

Lines go to files that stay open and are written one by one: each costs microseconds, and a kill loses at most the one being written. On a
filesystem that is not this machine's, the lines are collected in a temporary directory and uploaded by `flush`, at a cost that does not
grow with the record; whole files go there at once. One process writes a record at a time. Not covered: reading (`record.py`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from syncline.runs.environment import environment
from syncline.runs.files import Files
from syncline.runs.lines import SEALED_BYTES, LineFile, read_pieces, sealed_name
from syncline.runs.values import encode, plain

RUN_FILE = "run.json"
EVENTS_FILE = "events.jsonl"
METRICS_FILE = "metrics.jsonl"
CHECKPOINTS_FILE = "checkpoints.json"
OUTCOME_FILE = "outcome.json"
LOGS_DIRECTORY = "logs"
_LOG_GROWTH = 1.1
"""A log is uploaded again when it has grown by this factor, so that all uploads together are a small multiple of its length."""


class RunDirectory:
    """Writer of one run's record; opening one that exists adds to it. May be used from several threads.

    Args:
        files: Where the record lies.
        clock: Gives the time of events in seconds since the epoch.
    """

    def __init__(self, files: Files, clock: Callable[[], float] = time.time) -> None:
        self._files = files
        self._clock = clock
        self._lock = threading.RLock()
        self._open: dict[str, LineFile] = {}
        self._sealed: dict[str, int] = {}  # pieces of each file of lines that lie elsewhere and are not written again
        self._unsent: set[str] = set()
        self._logs_sent: dict[str, int] = {}  # bytes of each log that were uploaded last
        self._staging: str | None = None

    def write_run(self, name: str, config: Mapping[str, Any]) -> None:
        """Write `run.json`: the configuration (any objects; see `values.plain`), the environment and the time."""
        record = {"name": name, "started": self._clock(), "config": plain(config), "environment": environment()}
        self._files.write(RUN_FILE, encode(record))

    def event(self, event: str, **fields: Any) -> None:
        """Add a line to `events.jsonl`."""
        self._append(EVENTS_FILE, {"time": self._clock(), "event": event, **fields})

    def report(self, iteration: int, rank: int, metrics: Mapping[str, Any], time_s: float | None = None) -> None:
        """Add a report to `metrics.jsonl`.

        Args:
            iteration: Number of the report, counted on over restarts.
            rank: Who made it.
            metrics: As `syncline.train.metrics.clean` leaves them.
            time_s: When it was made, in seconds since the epoch; now if not given.
        """
        when = self._clock() if time_s is None else time_s
        self._append(METRICS_FILE, {"iteration": iteration, "time": when, "rank": rank, "metrics": metrics})

    def write_checkpoints(self, state: Mapping[str, Any]) -> None:
        """Replace `checkpoints.json`."""
        self._files.write(CHECKPOINTS_FILE, encode(state))

    def write_outcome(self, status: str, error: str | None = None, **fields: Any) -> None:
        """Write `outcome.json`: how the run ended, and the text of its error if it had one."""
        self._files.write(OUTCOME_FILE, encode({"status": status, "error": error, "time": self._clock(), **fields}))

    def log_path(self, name: str) -> str:
        """Path on this machine of a log file in `logs/`, its directory made. Elsewhere than on this machine, `flush` uploads it."""
        with self._lock:
            path = self._local(f"{LOGS_DIRECTORY}/{name}")
            self._logs_sent.setdefault(f"{LOGS_DIRECTORY}/{name}", 0)
            return path

    def flush(self) -> None:
        """Upload what only lies on this machine, logs only once they have grown. Nothing to do for a record that lies on this machine.

        Raises:
            OSError: It could not be uploaded; the next flush tries again.
        """
        self._flush(_LOG_GROWTH)

    def close(self) -> None:
        """Flush everything, and close every file. Later calls open them again."""
        with self._lock:
            self._flush(1.0)
            self.abandon()

    def abandon(self) -> None:
        """Close every file, and drop what only lies on this machine, where the record is somebody else's by now."""
        with self._lock:
            for file in self._open.values():
                file.close()
            self._open.clear()
            if self._staging is not None:
                shutil.rmtree(self._staging, ignore_errors=True)
                self._staging = None
                self._unsent.clear()
                self._logs_sent.clear()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _flush(self, log_growth: float) -> None:
        with self._lock:
            if self._files.local_path is not None:
                return
            for name in sorted(self._unsent):
                self._send_lines(name)
                self._unsent.discard(name)
            for name, sent in self._logs_sent.items():  # others write these
                path = self._local(name)
                size = os.path.getsize(path) if os.path.exists(path) else 0
                if size > sent * log_growth:
                    self._logs_sent[name] = self._send(name)

    def _send_lines(self, name: str) -> None:
        file = self._open[name]
        if file.size_bytes > SEALED_BYTES:
            number = self._sealed.get(name, 0) + 1
            self._send(name, sealed_name(name, number))
            self._sealed[name] = number
            file.clear()
        self._send(name)

    def _send(self, name: str, target: str | None = None) -> int:
        """Upload a file as it is now; how long it was."""
        with open(self._local(name), "rb") as file:
            data = file.read()
        self._files.write(target or name, data)
        return len(data)

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        line = encode(record)
        with self._lock:
            file = self._open.get(name)
            if file is None:
                file = self._open[name] = self._open_to_append(name)
            file.append(line)
            self._unsent.add(name)

    def _open_to_append(self, name: str) -> LineFile:
        path = self._local(name)
        if self._files.local_path is None and not os.path.exists(path):
            *sealed, current = read_pieces(self._files, name)
            self._sealed[name] = len(sealed)
            with open(path, "wb") as file:
                file.write(current)
        return LineFile(path)

    def _local(self, name: str) -> str:
        root = self._files.local_path
        if root is None:
            if self._staging is None:
                self._staging = tempfile.mkdtemp(prefix="syncline-run-")
            root = self._staging
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path
