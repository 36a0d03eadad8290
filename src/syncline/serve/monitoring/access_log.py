"""`AccessLog`: one line per request, formatted and written by a thread in batches.

The event loop only appends a tuple to a list. Beyond `MOST_PER_S` requests per second, some are
counted instead of written, so that neither the loop nor the disk pays for them. The file is renamed
to `access.1.log` when it is large; the one before is dropped.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Sequence

from syncline.records import dataclass
from syncline.serve.logging_config import EncodingType, LoggingConfig
from syncline.serve.monitoring.reports import RecordTo

logger = logging.getLogger("syncline.serve")

Entry = tuple[str, str, bytes, int, float, float]
"""Request id, method, target, status, start (`perf_counter`), seconds."""

MOST_PER_S = 5_000
"""Requests per second that are written."""
LARGEST_BYTES = 16_000_000
"""Size from which the file is renamed; there are at most two."""
WRITE_EVERY_S = 0.5
_LINES_AT_ONCE = 100
"""Lines that the thread formats before it lets the event loop run."""
_LONGEST_PATH = 500


@dataclass(frozen=True, kw_only=True)
class AccessLogStatistics:
    """Counts of an access log."""

    written: int
    left_out: int
    """Requests without a line, because there were too many or the disk was full."""


ACCESS_LOG = "access"


def access_log_for(message: RecordTo, *, is_same_node: bool) -> AccessLog | None:
    """Return the running access log of a proxy; None if it is disabled, or INFO is.

    Also None on another node than the controller's that does not have its directory.

    Proxies on such nodes have a file each, if they share the controller's file system.
    """
    config = message.logging_config or LoggingConfig()
    directory = config.logs_dir or os.path.join(message.directory, "logs")
    if not config.enable_access_log or _hides_info(config.log_level):
        return None
    if not (is_same_node or os.path.isdir(directory)):
        return None
    stem = ACCESS_LOG if is_same_node else f"{ACCESS_LOG}-{socket.gethostname()}"
    log = AccessLog(
        os.path.join(directory, f"{stem}.log"),
        as_json=config.encoding is EncodingType.JSON,
        attributes=config.additional_log_standard_attrs,
    )
    log.start()
    return log


def _hides_info(level: str) -> bool:
    number = logging.getLevelName(level)
    return isinstance(number, int) and number > logging.INFO


class AccessLog:
    """Access log of one process. `add` is called on the event loop.

    Args:
        path: File.
        as_json: Write one JSON object per line.
        attributes: Attributes of `logging.LogRecord` to add to each line.
    """

    def __init__(self, path: str, *, as_json: bool = False, attributes: Sequence[str] = ()) -> None:
        self._attributes = tuple(attributes)
        self._path = path
        self._as_json = as_json
        self._entries: list[Entry] = []
        self._most = int(MOST_PER_S * WRITE_EVERY_S)
        self._left_out = 0
        self._left_out_before = 0
        self._written = 0
        self._wall_offset = 0.0  # wall clock minus perf_counter
        self._second = -1
        self._second_text = ""
        self._has_failed = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name="serve-access-log", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, entry: Entry) -> None:
        """Record a finished request."""
        if len(self._entries) < self._most:
            self._entries.append(entry)
        else:
            self._left_out += 1

    def close(self) -> None:
        """Write the rest and end the thread."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def statistics(self) -> AccessLogStatistics:
        """Return the current counts."""
        return AccessLogStatistics(written=self._written, left_out=self._left_out)

    def _work(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._end.wait(WRITE_EVERY_S)
            try:
                self.write()
                self._has_failed = False
            except OSError as error:
                if not self._has_failed:
                    self._has_failed = True
                    logger.warning("The access log %s cannot be written: %s", self._path, error)

    def write(self) -> None:
        """Write the noted requests; OSError if the file cannot be written."""
        if not self._entries and self._left_out == self._left_out_before:
            return
        entries, self._entries = self._entries, []
        self._wall_offset = time.time() - time.perf_counter()
        descriptor = self._open()
        try:
            for start in range(0, len(entries), _LINES_AT_ONCE):
                part = entries[start : start + _LINES_AT_ONCE]
                os.write(descriptor, self._formatted(part))  # the loop runs meanwhile
                self._written += len(part)
            left_out = self._left_out - self._left_out_before
            if left_out:
                self._left_out_before += left_out
                os.write(descriptor, self._note(left_out))
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o644)
        if os.fstat(descriptor).st_size < LARGEST_BYTES:
            return descriptor
        os.close(descriptor)
        stem, extension = os.path.splitext(self._path)
        os.replace(self._path, f"{stem}.1{extension}")
        return os.open(self._path, flags, 0o644)

    def _formatted(self, entries: Sequence[Entry]) -> bytes:
        lines = []
        for request_id, method, target, status, started, elapsed in entries:
            moment = self._moment(started + elapsed)
            path = target.partition(b"?")[0][:_LONGEST_PATH].decode("ascii", "backslashreplace")
            more = self._more(started + elapsed, moment) if self._attributes else {}
            if self._as_json:
                line = json.dumps(
                    {
                        "time": moment,
                        "request_id": request_id,
                        "method": method,
                        "route": path,
                        "status": status,
                        "ms": round(elapsed * 1e3, 2),
                        **more,
                    }
                )
                lines.append(f"{line}\n")
            else:
                shown = "".join([f" {name}={value}" for name, value in more.items()])
                lines.append(
                    f"{moment} {request_id} {method} {path} {status} {elapsed * 1e3:.2f}ms{shown}\n"
                )
        return "".join(lines).encode()

    def _more(self, ended: float, moment: str) -> dict[str, object]:
        """Return the additional attributes, as of a record that was made at the end."""
        record = logging.LogRecord("syncline.serve", logging.INFO, __file__, 0, "", (), None)
        started = record.created - record.relativeCreated / 1e3
        record.created = ended + self._wall_offset
        record.msecs = record.created % 1 * 1e3
        record.relativeCreated = (record.created - started) * 1e3
        record.asctime = moment
        return {name: getattr(record, name, None) for name in self._attributes}

    def _moment(self, ended: float) -> str:
        wall = ended + self._wall_offset
        second = int(wall)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        return f"{self._second_text}.{int((wall - second) * 1e3):03d}"

    def _note(self, left_out: int) -> bytes:
        text = f"{left_out} more requests than {MOST_PER_S} per second"
        if self._as_json:
            return json.dumps({"not_logged": left_out, "reason": text}).encode() + b"\n"
        return f"{self._moment(time.perf_counter())} - {text}: not logged\n".encode()
