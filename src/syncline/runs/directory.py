"""`RunDirectory`: writes the record of one run.

Lines go to files that stay open and are written one by one: each costs microseconds, and a kill
loses at most the one being written. On a filesystem that is not this machine's, the lines are
collected in a temporary directory and uploaded by `flush`, at a cost that does not grow with the
record, and without keeping others from writing meanwhile; whole files go there at once. Reports and
samples are thinned (`thinning.py`), so that a record stays small however long a run lasts. One
process writes a record at a time. Not covered: reading (`record.py`, `run.py`).
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal

from syncline.runs.environment import details, environment
from syncline.runs.files import Files
from syncline.runs.lines import SEALED_BYTES, LineFile, read_pieces, sealed_name
from syncline.runs.secrets import masked
from syncline.runs.thinning import Thinning
from syncline.runs.values import encode, plain

FORMAT = 1
"""Version of all that is described in the package's docstring; a reader refuses what is newer."""
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
LOGS_DIRECTORY = "logs"
DATA_DIRECTORY = "data"
PROFILES_DIRECTORY = "profiles"
TRACKERS_DIRECTORY = "trackers"
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
        LOGS_DIRECTORY,
        DATA_DIRECTORY,
        PROFILES_DIRECTORY,
        TRACKERS_DIRECTORY,
    }
)
"""What programs may not name their checkpoints."""

RunKind = Literal["train", "tune", "data"]

_THINNED = {
    METRICS_FILE: Thinning(first_bytes=6_000_000),
    WORKERS_FILE: Thinning(first_bytes=1_000_000),
}
_EVENTS_BYTES = 4_000_000
"""From there on only the numbers and short texts of events are written: not the tracebacks of the
thousandth failure.
"""
_SHORT_EVENT_BYTES = 1_000
_SHORT_TEXT = 200
_LATEST_EVERY_S = 5.0
"""How often the latest report is written where it is not among those that are kept."""
_DETAILS_LIMIT_S = 10.0
"""How long the end of a run waits for the details of its environment."""
_LOG_GROWTH = 1.1
"""A log is uploaded again when it has grown by this factor, so that all uploads together are a
small multiple of its length.
"""

logger = logging.getLogger("syncline")


class RunDirectory:
    """Writer of one run's record; opening one that exists adds to it. May be used from several
    threads.

    Args:
        files: Where the record lies. clock: Gives the time of events in seconds since the epoch.
        staging: Where the temporary directory is made if there has to be one: best a place that is
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
        self._uploading = (
            threading.Lock()
        )  # held by one upload, for as long as it takes; taken before `_lock`
        self._sealed: dict[
            str, int
        ] = {}  # pieces of each file of lines that lie elsewhere and are not written again
        self._unsent: set[str] = set()
        self._unsent_pieces: list[tuple[str, int]] = []
        self._logs: set[str] = set()
        self._sent: dict[
            str, tuple[int, int]
        ] = {}  # of each part of a log: which file was uploaded last, and how much of it
        self._staging: str | None = None
        self._sizes: dict[str, int] = {}  # bytes of each file of lines, with its sealed pieces
        self._samples: dict[int | str, int] = {}
        self._latest: Mapping[str, Any] | None = (
            None  # of rank 0, not among the reports that are kept and not written yet
        )
        self._latest_at = 0.0
        self._started: float | None = None
        self._details: threading.Thread | None = None

    def write_run(
        self,
        name: str,
        config: Mapping[str, Any],
        kind: RunKind = "train",
        *,
        detailed: bool = True,
    ) -> None:
        """Write `run.json`: the configuration (any objects; see `values.plain`) without secrets,
        the environment and the time.

        Args:
            name: What people call the run.
            config: How it was configured.
            kind: What runs.
            detailed: Whether `environment.json` follows, written beside the run.
        """
        self._started = self._clock()
        record = {"format": FORMAT, "kind": kind, "name": name, "started": self._started}
        self._files.write(
            RUN_FILE,
            encode({**record, "config": masked(plain(config)), "environment": environment()}),
        )
        if detailed:
            self._details = threading.Thread(
                target=self._write_details, name="syncline-environment", daemon=True
            )
            self._details.start()

    def event(self, event: str, **fields: Any) -> None:
        """Add a line to `events.jsonl`; where there are very many, without what is long in it."""
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
        metrics: Mapping[str, Any],
        time_s: float | None = None,
        *,
        wanted: bool = False,
    ) -> None:
        """Add a report to `metrics.jsonl`, unless that has become so large that only some are kept.

        Args:
            iteration: Number of the report, counted on over restarts.
            member: Who made it: a rank, or the id of a trial.
            metrics: As `syncline.train.metrics.clean` leaves them.
            time_s: When it was made, in seconds since the epoch; now if not given.
            wanted: It is kept as long as there is room: one with a checkpoint.
        """
        when = self._clock() if time_s is None else time_s
        record = {"iteration": iteration, "time": when, _who(member): member, "metrics": metrics}
        is_kept = self._append_some(METRICS_FILE, record, member, iteration, wanted=wanted)
        if member != 0:
            return
        self._latest = None if is_kept else record
        if is_kept:
            return
        # Elsewhere it goes with the next flush. A clock that was set back must not end this.
        if (
            self._files.local_path is not None
            and not 0 <= self._clock() - self._latest_at < _LATEST_EVERY_S
        ):
            with suppress(OSError):  # the next one, or the end, will say so
                self._write_latest()

    def sample(
        self,
        member: int | str,
        attempt: int,
        pid: int,
        usage: Mapping[str, Any],
        spent: Mapping[str, float] | None = None,
    ) -> None:
        """Add a sample of one worker's process to `workers.jsonl`.

        Args:
            member: A rank, or the id of a trial.
            attempt: The number of the worker group.
            pid: The process.
            usage: What `usage.Sampler` has seen.
            spent: Where its time has gone since the attempt began, in seconds.
        """
        record: dict[str, Any] = {
            "time": self._clock(),
            _who(member): member,
            "attempt": attempt,
            "pid": pid,
            "usage": usage,
        }
        if spent is not None:
            record["spent"] = spent
        with self._lock:
            number = self._samples[member] = self._samples.get(member, -1) + 1
        self._append_some(WORKERS_FILE, record, member, number)

    def line(self, name: str, record: Mapping[str, Any]) -> None:
        """Add a line to another file of the record, such as `trials.jsonl` or
        `data/train.jsonl`.
        """
        self._append(name, record)

    def write_checkpoints(self, state: Mapping[str, Any]) -> None:
        """Replace `checkpoints.json`."""
        self._files.write(CHECKPOINTS_FILE, encode(state))

    def write_search(self, state: Mapping[str, Any]) -> None:
        """Replace `trials.json`: how far a search is."""
        self._files.write(SEARCH_FILE, encode(state))

    def write_outcome(self, status: str, error: str | None = None, **fields: Any) -> None:
        """Write `outcome.json`: how the run ended, and the text of its error if it had one."""
        # Which start of the run it belongs to cannot be told from the times: clocks are set back.
        start = {} if self._started is None else {"started": self._started}
        self._files.write(
            OUTCOME_FILE,
            encode({"status": status, "error": error, "time": self._clock(), **start, **fields}),
        )

    def log_path(self, name: str) -> str:
        """Path on this machine of a log file in `logs/`, its directory made. Elsewhere than on this
        machine, `flush` uploads it.
        """
        with self._lock:
            self._logs.add(f"{LOGS_DIRECTORY}/{name}")
            return self._local(f"{LOGS_DIRECTORY}/{name}")

    def flush(self) -> None:
        """Upload what only lies on this machine, logs only once they have grown. Nothing to do for
        a record that lies on this machine.

        Raises:
            OSError: It could not be uploaded; the next flush tries again.
        """
        self._flush(_LOG_GROWTH)

    def close(self) -> None:
        """Flush everything, and close every file. Later calls open them again."""
        if self._details is not None:
            self._details.join(_DETAILS_LIMIT_S)
        self._write_latest()
        self._flush(1.0)
        self.abandon()

    def abandon(self) -> None:
        """Close every file, and drop what only lies on this machine, where the record is somebody
        else's by now.
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
        except OSError as error:  # a record without them is still one
            logger.debug("the details of the environment cannot be written: %s", error)

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
            for name in logs:  # others write these
                self._send_log(name, log_growth)

    def _send_lines(self, name: str) -> None:
        with self._lock:
            if self._open[name].size_bytes > SEALED_BYTES:
                self._seal(name)
        while self._unsent_pieces:  # before what follows them
            piece = sealed_name(*self._unsent_pieces[0])
            self._send(piece)
            os.unlink(self._local(piece))
            del self._unsent_pieces[0]
        with self._lock:  # what is added from here on is for the next time
            self._unsent.discard(name)
        try:
            self._send(name)
        except OSError:
            with self._lock:
                self._unsent.add(name)
            raise

    def _seal(self, name: str) -> None:
        """Put what a file of lines has so far aside, as a piece, and begin it anew."""
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
                self._sent[earlier] = now
        if os.path.exists(path):
            now, (file, size) = _identity(path), self._sent.get(name, (0, 0))
            if now[0] != file or now[1] > size * growth or now[1] < size:
                self._sent[name] = now[0], self._send(name)

    def _send(self, name: str) -> int:
        """Upload a file as it is now; how long it was."""
        with open(self._local(name), "rb") as file:
            data = file.read()
        self._files.write(name, data)
        return len(data)

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        line = encode(record)
        with self._lock:
            self._add(name, line)

    def _append_some(
        self,
        name: str,
        record: Mapping[str, Any],
        member: int | str,
        iteration: int,
        *,
        wanted: bool = False,
    ) -> bool:
        """Add a line to a file that is thinned, if its rule keeps that; whether it does."""
        rule = _THINNED[name]
        with self._lock:
            self._opened(name)
            # Most reports of a long run are not kept: they need not be encoded.
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
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path


def _who(member: int | str) -> str:
    """The field of a line that says whose it is."""
    return "trial" if isinstance(member, str) else "rank"


def _is_short(value: Any) -> bool:
    return (
        value is None
        or isinstance(value, (int, float))
        or (isinstance(value, str) and len(value) <= _SHORT_TEXT)
    )


def _identity(path: str) -> tuple[int, int]:
    """Which file that is, whatever its name, and how long."""
    status = os.stat(path)
    return status.st_ino, status.st_size
