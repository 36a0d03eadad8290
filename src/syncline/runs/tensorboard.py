"""`ScalarWriter`: the numbers of a run's reports in the form that TensorBoard shows.

The file `events.out.tfevents.*` in the run directory is only ever added to, a record at a time,
straight to the system: a kill loses nothing that was written, and a record that it has torn ends
the file for readers without harm. Every writer begins a file of its own, whose name comes after
those that are there, because boards read the files of a directory in that order. On a filesystem
that is not this machine's the file is collected in a temporary directory, and `flush` uploads it.

However many steps there are, all files of a directory of this machine together stay below 5 MB
(elsewhere: those of one writer): beyond the first half, every fourth step is written, then every
sixteenth, … (`thinning.py`). A program that reports many times a second for long gets fifty of
these steps a second, and the last one at its end: nobody sees more, and each costs as much as all
else of a report. Not covered: histograms, images (`event_file.py` has the former, for searches).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from syncline.runs import event_file
from syncline.runs.files import Files
from syncline.runs.thinning import Thinning

FILE_PREFIX = "events.out.tfevents."
FIRST_BYTES = 2_500_000
"""So much is written whole; all together stays below twice as much."""
BURST_STEPS = 1_000
"""So many steps are written however soon they come after one another."""
STEPS_PER_S = 50.0
"""After these, so many in a second."""
_GROWTH = 1.1
"""A file is uploaded again when it has grown by this factor, so that all uploads together are a
small multiple of its length.
"""
_NOT_IN_TAGS = re.compile(r"[^-/\w. ]")


class ScalarWriter:
    """Adds the numbers of reports to a file for TensorBoard. Not safe for use from several threads.
    Nothing is made before the first step.

    Args:
        files: The run directory.
        clock: Gives the time of steps in seconds since the epoch.
        first_bytes: So much is written whole.
        staging: Where the temporary directory is made if there has to be one.
    """

    def __init__(
        self,
        files: Files,
        clock: Callable[[], float] = time.time,
        first_bytes: int = FIRST_BYTES,
        staging: str | os.PathLike[str] | None = None,
    ) -> None:
        self._staging_parent = staging
        self._files = files
        self._clock = clock
        self._thinning = Thinning(first_bytes=first_bytes)
        self._path: Path | None = None
        self._descriptor: int | None = None
        self._own_bytes = 0
        self._earlier_bytes = 0  # in the files of earlier writers
        self._sent_bytes = 0
        self._void_from: int | None = None
        self._allowed = float(BURST_STEPS)
        self._allowed_at = 0.0
        self._passed_over: tuple[int, Mapping[str, Any], float] | None = None

    def restart(self, step: int) -> None:
        """What was written for `step` and later ones is done again: boards forget it."""
        self._void_from = step

    def add(self, step: int, metrics: Mapping[str, Any], time_s: float | None = None) -> None:
        """Write the numbers in `metrics`, nested ones under `a/b`; truth values, texts and lists
        are left out.

        Args:
            step: Where they stand on the horizontal axis.
            metrics: As `syncline.train.metrics.clean` leaves them.
            time_s: When they were reported, in seconds since the epoch; now if not given.

        Raises:
            OSError: There is no room; the file is as it was.
        """
        now = self._clock() if time_s is None else time_s
        if not self._keeps(step, 0) or not self._is_due(
            now
        ):  # most steps of a long run are not worth encoding
            self._passed_over = step, metrics, now
            return
        self._passed_over = None
        self._write(step, metrics, now)

    def _is_due(self, now: float) -> bool:
        self._allowed = min(
            BURST_STEPS, self._allowed + STEPS_PER_S * max(0.0, now - self._allowed_at)
        )
        self._allowed_at = now
        if self._allowed < 1:
            return False
        self._allowed -= 1
        return True

    def _write(self, step: int, metrics: Mapping[str, Any], now: float) -> None:
        values = b"".join(event_file.scalar(_tag(name), value) for name, value in numbers(metrics))
        if not values:
            return
        data = event_file.record(event_file.summary_event(now, step, values))
        if self._path is None:
            self._path = self._begin(now)
        if not self._own_bytes:
            data = event_file.record(event_file.first_event(now)) + self._restart_record(now) + data
        elif self._void_from is not None:
            data = self._restart_record(now) + data
        if self._keeps(step, len(data)):
            self._append(data)
            self._void_from = None

    def flush(self, growth: float = _GROWTH) -> None:
        """Upload the file if it only lies on this machine and has grown so much. May be called
        beside `add`. OSError if that fails.
        """
        path, size_bytes = self._path, self._own_bytes
        if (
            path is None
            or self._files.local_path is not None
            or size_bytes <= self._sent_bytes * growth
        ):
            return
        self._files.write(path.name, path.read_bytes()[:size_bytes])
        self._sent_bytes = size_bytes

    def close(self, *, keep: bool = True) -> None:
        """Upload the rest if it is to be kept, and close the file; what comes later goes into
        another one. OSError if that fails.
        """
        try:
            if keep and self._passed_over is not None:
                self._write(*self._passed_over)
            if keep:
                self.flush(1.0)
        finally:
            if self._descriptor is not None:
                os.close(self._descriptor)
            if self._path is not None and self._files.local_path is None:
                shutil.rmtree(self._path.parent, ignore_errors=True)
            self._path = self._descriptor = None
            self._own_bytes = self._sent_bytes = 0

    def _keeps(self, step: int, size_bytes: int) -> bool:
        return self._thinning.keeps(
            0, step, line_bytes=size_bytes, size_bytes=self._earlier_bytes + self._own_bytes
        )

    def _restart_record(self, now: float) -> bytes:
        return (
            b""
            if self._void_from is None
            else event_file.record(event_file.session_start(now, self._void_from))
        )

    def _begin(self, now: float) -> Path:
        """The file for what follows, not made yet: named behind every one that is there."""
        local = self._files.local_path
        there = (
            []
            if local is None
            else [path for path in Path(local).glob(f"{FILE_PREFIX}*") if path.is_file()]
        )
        self._earlier_bytes = sum(path.stat().st_size for path in there)
        stamps = [
            int(text)
            for path in there
            if (text := path.name.removeprefix(FILE_PREFIX).partition(".")[0]).isdigit()
        ]
        stamp = max([int(now * 1000), *(earlier + 1 for earlier in stamps)])
        directory = (
            tempfile.mkdtemp(prefix="syncline-scalars-", dir=self._staging_parent)
            if local is None
            else local
        )
        return Path(directory, f"{FILE_PREFIX}{stamp:013d}.{socket.gethostname()}")

    def _append(self, data: bytes) -> None:
        if self._descriptor is None:
            assert self._path is not None
            self._descriptor = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666
            )
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:] if written else data)
        except OSError:
            os.ftruncate(self._descriptor, self._own_bytes)
            raise
        self._own_bytes += len(data)


def numbers(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Names and values of the numbers in `metrics`, the names of nested ones joined by `/`."""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{prefix}{name}", value


@lru_cache(maxsize=4096)
def _tag(name: str) -> str:
    return _NOT_IN_TAGS.sub("_", name)
