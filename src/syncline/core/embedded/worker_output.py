"""Output of workers: size-limited log files, last lines for errors, the driver's streams.

`log_display` decides what the terminal shows; this module does the decoding, the files, the
streams and the size of their terminal, the timer and the locks.
"""

from __future__ import annotations

import codecs
import os
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TextIO

from syncline.core.embedded.interrupts import make_guard
from syncline.core.embedded.log_display import Display, Stream, Texts
from syncline.core.embedded.terminal_rows import Size
from syncline.core.live_region import RedirectedStream
from syncline.records import dataclass
from syncline.settings import environment

ENDED_TAILS = 256
"""Number of ended workers whose last lines are kept."""

FILE_LIMIT_BYTES = 8_000_000
FILES_PER_STREAM = 3
TAIL_BYTES = 16_384
"""Bytes that a tail keeps of a worker; at most twice as many."""

_new_decoder = codecs.getincrementaldecoder("utf-8")


class LogFile:
    """One stream of one worker on disk: `path`, and `path.1`, `path.2` … with earlier output.

    The first write creates the file. A file system error loses log lines but never raises; `write`
    returns False. Not thread-safe.
    """

    def __init__(
        self, path: Path, *, limit_bytes: int = FILE_LIMIT_BYTES, files: int = FILES_PER_STREAM
    ) -> None:
        """`limit_bytes` is the size of one file; `files` of them are kept."""
        self._path = path
        self._limit_bytes = limit_bytes
        self._files = files
        self._fd = -1
        self._size = 0

    def write(self, data: bytes) -> bool:
        """Append data, rotating the files first if needed; False if the file system refused it."""
        try:
            if self._fd < 0:
                self._open()
            if self._size and self._size + len(data) > self._limit_bytes:
                self._rotate()
            left = memoryview(data)
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            self.close()
            return False
        self._size += len(data)
        return True

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        self.close()
        names = [self._path, *(Path(f"{self._path}.{age}") for age in range(1, self._files))]
        for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
            if newer.exists():
                newer.replace(older)
        if self._files == 1:
            self._path.unlink()
        self._open()


class Tail:
    """The end of a worker's output, both streams in the order of arrival. Not thread-safe."""

    def __init__(self) -> None:
        self._runs: list[tuple[Stream, bytearray]] = []
        self._nbytes = 0
        self._cut: set[Stream] = set()  # streams whose earliest kept line lacks its beginning

    def add(self, stream: Stream, data: bytes) -> None:
        """Add output of the worker."""
        if self._runs and self._runs[-1][0] == stream:
            self._runs[-1][1].extend(data)
        else:
            self._runs.append((stream, bytearray(data)))
        self._nbytes += len(data)
        if self._nbytes > 2 * TAIL_BYTES:
            self._shorten()

    def text(self, lines: int) -> str:
        """Return the last `lines` lines; of a redrawn line, the text a terminal would show."""
        whole: list[bytes] = []
        unfinished: dict[Stream, bytes] = {"out": b"", "err": b""}
        cut = set(self._cut)
        for stream, run in self._runs:
            *ended, unfinished[stream] = (unfinished[stream] + run).split(b"\n")
            if ended and stream in cut:
                cut.discard(stream)
                del ended[0]
            whole += ended
        whole += [rest for rest in unfinished.values() if rest]
        chosen = whole[-lines:] if lines > 0 else []
        return "\n".join(
            line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2] for line in chosen
        )

    def _shorten(self) -> None:
        while self._nbytes > TAIL_BYTES:
            stream, run = self._runs[0]
            self._cut.add(stream)
            excess = self._nbytes - TAIL_BYTES
            if len(run) <= excess:
                self._nbytes -= len(run)
                del self._runs[0]
            else:
                if run[excess - 1] == 0x0A:
                    self._cut.discard(stream)
                del run[:excess]
                self._nbytes -= excess


@dataclass(frozen=True, kw_only=True)
class OutputStatistics:
    """Counters of worker output."""

    workers: int
    """Workers with output that have not ended."""
    received_bytes: int
    lost_log_bytes: int
    """Bytes that the file system did not accept."""
    lost_texts: int
    """Texts that a stream of the driver did not accept, because it is closed or broken."""
    repeated_lines: int
    """Lines that were counted instead of shown, because another worker had printed them."""


class _Worker:
    """Output state of one worker."""

    __slots__ = ("decoders", "files", "tail")

    def __init__(self, directory: Path, number: int) -> None:
        self.tail = Tail()
        self.files: dict[Stream, LogFile] = {
            stream: LogFile(directory / f"worker-{number}.{stream}") for stream in ("out", "err")
        }
        self.decoders: dict[Stream, codecs.IncrementalDecoder] = {
            stream: _new_decoder("replace") for stream in ("out", "err")
        }

    def close(self) -> None:
        for file in self.files.values():
            file.close()


class WorkerOutput:
    """Receives the output of all workers. Thread-safe; never raises because of a file or stream.

    Texts are computed under one lock and written under another, so that a stream whose `write`
    calls back finds no lock of this class.
    """

    def __init__(
        self,
        directory: Path,
        *,
        to_driver: bool,
        call_later: Callable[[float, Callable[[], None]], None],
        clock: Callable[[], float] = time.monotonic,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        """directory: existing directory for log files.
        to_driver: write worker output to the driver's streams.
        call_later: `call_later(delay_s, action)` calls `action()` once, on any thread.
        clock: monotonic time in seconds.
        stdout, stderr: None for `sys.stdout` and `sys.stderr` at the time of each write.
        """
        self._directory = directory
        self._display = Display(self._size_of) if to_driver else None
        self._call_later = call_later
        self._clock = clock
        self._streams: dict[Stream, TextIO | None] = {"out": stdout, "err": stderr}
        self._workers: dict[int, _Worker] = {}
        self._ended: dict[int, Tail] = {}
        self._lock = make_guard()
        self._outbox: deque[tuple[Stream, str]] = deque()
        self._write_lock = make_guard()
        self._writing_thread: int | None = None
        self._timer_moment = float("inf")
        self._received_bytes = 0
        self._lost_log_bytes = 0
        self._lost_texts = 0
        self._closed = False

    @property
    def statistics(self) -> OutputStatistics:
        """Current counters."""
        return OutputStatistics(
            workers=len(self._workers),
            received_bytes=self._received_bytes,
            lost_log_bytes=self._lost_log_bytes,
            lost_texts=self._lost_texts,
            repeated_lines=self._display.repeated_lines if self._display is not None else 0,
        )

    def name(self, number: int, label: str, *, always: bool = False) -> None:
        """Set the label of a worker, such as `Counter pid=123`, the prefix of its lines. With
        `always`, they have it even if no other worker writes.
        """
        if self._display is not None:
            self._display.name(number, label, always=always)

    def feed(self, number: int, stream: Stream, data: bytes) -> None:
        """Add output of a worker."""
        with self._lock:
            if self._closed:
                return
            worker = self._worker(number)
            self._received_bytes += len(data)
            worker.tail.add(stream, data)
            if not worker.files[stream].write(data):
                self._lost_log_bytes += len(data)
            text = worker.decoders[stream].decode(data)
            if self._display is not None and text:
                self._decided(self._display.write(number, stream, text, self._clock()))
        self._write_out()

    def tail(self, number: int, lines: int = 20) -> str:
        """Return the last lines of both streams of a worker, even after its end."""
        with self._lock:
            worker = self._workers.get(number)
            tail = worker.tail if worker is not None else self._ended.get(number)
            return tail.text(lines) if tail is not None else ""

    def end(self, number: int) -> None:
        """Show the unfinished lines of an ended worker, close its files, and keep its tail.

        The timer writes to the driver's streams, because the caller may hold locks that a stream's
        `write` needs.
        """
        with self._lock:
            worker = self._workers.pop(number, None)
            if worker is not None:
                worker.close()
                self._ended[number] = worker.tail
                if len(self._ended) > ENDED_TAILS:
                    del self._ended[next(iter(self._ended))]
            if self._display is not None:
                for stream, decoder in worker.decoders.items() if worker is not None else ():
                    rest = decoder.decode(b"", final=True)
                    if rest:
                        self._decided(self._display.write(number, stream, rest, self._clock()))
                self._decided(self._display.end(number))
                if self._outbox:
                    self._call_later(0.0, self._write_out)

    def flush(self) -> None:
        """Show all held text."""
        with self._lock:
            if self._display is not None:
                self._decided(self._display.flush(self._clock()))
        self._write_out()

    def close(self) -> None:
        """Flush, and close the files. Later output is dropped; tails remain."""
        self.flush()
        with self._lock:
            self._closed = True
            for worker in self._workers.values():
                worker.close()

    def _worker(self, number: int) -> _Worker:
        worker = self._workers.get(number)
        if worker is None:
            worker = self._workers[number] = _Worker(self._directory, number)
            tail = self._ended.pop(number, None)
            if tail is not None:
                worker.tail = tail
        return worker

    def _decided(self, texts: Texts) -> None:
        """Queue texts for writing and schedule the next `tick`. Caller holds the lock."""
        self._outbox.extend(texts)
        assert self._display is not None
        moment = self._display.next_moment()
        if moment is not None and moment < self._timer_moment:
            self._timer_moment = moment
            self._call_later(max(0.0, moment - self._clock()), partial(self._on_timer, moment))

    def _on_timer(self, moment: float) -> None:
        with self._lock:
            if moment != self._timer_moment:
                return  # a later call scheduled an earlier tick, which schedules the next
            self._timer_moment = float("inf")
            if self._display is not None and not self._closed:
                self._decided(self._display.tick(self._clock()))
        self._write_out()

    def _write_out(self) -> None:
        """Write the queued texts, in order."""
        # A stream's `write` may call this again: the loop below continues after it.
        if not self._outbox or self._writing_thread == threading.get_ident():
            return
        with self._write_lock:
            self._writing_thread = threading.get_ident()
            try:
                while self._outbox:
                    self._write(*self._outbox.popleft())
            finally:
                self._writing_thread = None

    def _target(self, stream: Stream) -> TextIO:
        target = self._streams[stream]
        if target is None:
            target = sys.stdout if stream == "out" else sys.stderr
        return target

    def _size_of(self, stream: Stream) -> Size | None:
        """Return the size of the terminal that shows the stream; None if it is not a terminal."""
        target = self._target(stream)
        try:
            if not (isinstance(target, RedirectedStream) or target.isatty()):
                return None
        except Exception:  # closed, None or a failing replacement
            return None
        if environment("TERM") == "dumb":
            return None
        try:
            columns, lines = os.get_terminal_size(target.fileno())
        except (OSError, ValueError):  # a replacement without a file
            columns = lines = 0
        return Size(columns, lines) if columns and lines else Size(*shutil.get_terminal_size())

    def _write(self, stream: Stream, text: str) -> None:
        target = self._target(stream)
        try:
            try:
                target.write(text)
            except UnicodeEncodeError:
                encoding = target.encoding
                target.write(text.encode(encoding, "backslashreplace").decode(encoding))
            target.flush()
        except Exception:  # closed, broken, None or a failing replacement: continue the work
            self._lost_texts += 1
