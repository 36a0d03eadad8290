"""`ScalarWriter`: reported numbers of a run as TensorBoard event files.

The file `events.out.tfevents.*` in the run directory is append-only and unbuffered: a kill loses
nothing that was written, and readers ignore a torn last record. Each writer begins a new file whose
name sorts after the existing ones, because TensorBoard reads the files of a directory in that
order. For a remote filesystem the file is collected in a temporary directory and uploaded by
`flush`.

All files of a local directory together stay below 5 MB (remote: the files of one writer): after the
first half, every fourth step is written, then every sixteenth, … (`Thinning`). A program that
reports often gets at most fifty steps a second plus the last one, because encoding a step costs as
much as the rest of a report. Not covered: histograms and images (`media_events.py`).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from syncline.runs import event_file
from syncline.runs.metric_series import numbers
from syncline.runs.record_files import Files, Thinning

FILE_PREFIX = "events.out.tfevents."
FIRST_BYTES = 2_500_000
"""Bytes before thinning begins; all files together stay below twice as many."""
BURST_STEPS = 1_000
"""Steps that are written before the rate limit applies."""
STEPS_PER_S = 50.0
"""Rate limit of steps."""
_GROWTH = 1.1
"""Growth factor after which the file is uploaded again; it bounds the sum of all uploads to a small
multiple of the file's length.
"""
_NOT_IN_TAGS = re.compile(r"[^-/\w. ]")


class ScalarWriter:
    """Writer of the numbers in reports to a TensorBoard event file. Not thread-safe. Creates the
    file with the first step.

    Args:
        files: The run directory.
        clock: Returns the time of steps in seconds since the epoch.
        first_bytes: Bytes before thinning begins.
        staging: Parent of the temporary directory for remote records.
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
        self._passed_over: tuple[int, Mapping[str, object], float] | None = None

    def restart(self, step: int) -> None:
        """Make TensorBoard drop the values written for `step` and later ones."""
        self._void_from = step

    def add(self, step: int, metrics: Mapping[str, object], time_s: float | None = None) -> None:
        """Write the numbers in `metrics`, nested ones as `a/b`; skip other values.

        Args:
            step: Position on the horizontal axis.
            metrics: Metrics as `syncline.train.metric_values.clean` returns them.
            time_s: Time of the report in seconds since the epoch; now by default.

        Raises:
            OSError: There is no room; the file is unchanged.
        """
        now = self._clock() if time_s is None else time_s
        # Most steps of a long run are dropped; check before encoding.
        if not self._keeps(step, 0) or not self._is_due(now):
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

    def _write(self, step: int, metrics: Mapping[str, object], now: float) -> None:
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
        """Upload the file of a remote record if it has grown by the factor. May run concurrently
        with `add`. OSError if the upload fails.
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
        """Close the file; upload the rest if `keep`. Later steps go to a new file. OSError if the
        upload fails.
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
        """Return the path of the next file, which sorts after the existing ones."""
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


@lru_cache(maxsize=4096)
def _tag(name: str) -> str:
    return _NOT_IN_TAGS.sub("_", name)
