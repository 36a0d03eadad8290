"""What workers print, on its way to their log files and to the driver's streams.

This is the thin part: decoding, files, streams, the timer and the locks. What the terminal shows is
decided in `display` and `folding`, what is kept in `logs`.
"""

from __future__ import annotations

import codecs
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from syncline.core.embedded.display import Display, Texts
from syncline.core.embedded.interrupts import make_guard
from syncline.core.embedded.logs import LogFile, Stream, Tail

ENDED_TAILS = 256
"""Workers that are gone and whose last lines are still known."""

_new_decoder = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, kw_only=True)
class OutputStatistics:
    """What workers have printed so far."""

    workers: int
    """Workers that have printed and are not gone."""
    received_bytes: int
    lost_log_bytes: int
    """Bytes that the file system did not take."""
    lost_texts: int
    """Writes that a stream of the driver refused: it was closed, or broken."""
    folded_lines: int
    """Lines that were counted instead of shown, because another worker had just printed the
    same.
    """


class _Worker:
    """What is kept of one worker."""

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


class Output:
    """The way of everything that workers print. Any thread may call; nothing here raises because of
    a file or a stream.

    Texts are decided under one lock and written under another, so that a stream whose `write` comes
    back here finds no lock of its own.
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
        """directory: where the log files go; it exists. to_driver: whether the driver's streams
        show what workers print. call_later: `call_later(delay_s, action)` calls `action()` once, on
        any thread. clock: seconds, never backwards. stdout, stderr: None for `sys.stdout` and
        `sys.stderr` as they are at the moment of each write.
        """
        self._directory = directory
        self._display = Display() if to_driver else None
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
        """Counters since the start."""
        return OutputStatistics(
            workers=len(self._workers),
            received_bytes=self._received_bytes,
            lost_log_bytes=self._lost_log_bytes,
            lost_texts=self._lost_texts,
            folded_lines=self._display.folded_lines if self._display is not None else 0,
        )

    def name(self, number: int, label: str) -> None:
        """Say what the worker is now, `Counter pid=123` or `rank 0`: it stands in front of its
        lines when several workers write.
        """
        if self._display is not None:
            self._display.name(number, label)

    def feed(self, number: int, stream: Stream, data: bytes) -> None:
        """The worker wrote `data`."""
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
        """The last lines of both streams of a worker, also of one that is gone; "" for one that
        printed nothing.
        """
        with self._lock:
            worker = self._workers.get(number)
            tail = worker.tail if worker is not None else self._ended.get(number)
            return tail.text(lines) if tail is not None else ""

    def end(self, number: int) -> None:
        """The worker is gone: show what it did not finish, close its files, and keep its tail for a
        while.

        The driver's streams are written by the timer, not by the caller, who may hold locks that a
        stream's `write` needs.
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
        """Show everything that is held back."""
        with self._lock:
            if self._display is not None:
                self._decided(self._display.flush(self._clock()))
        self._write_out()

    def close(self) -> None:
        """Flush and close the files. What is fed later is dropped; tails stay."""
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
        """Line the texts up, and have the display asked again when it has more to show. Under the
        lock.
        """
        self._outbox.extend(texts)
        assert self._display is not None
        moment = self._display.next_moment()
        if moment is not None and moment < self._timer_moment:
            self._timer_moment = moment
            self._call_later(max(0.0, moment - self._clock()), partial(self._on_timer, moment))

    def _on_timer(self, moment: float) -> None:
        with self._lock:
            if moment != self._timer_moment:
                return  # an earlier one was asked for since, and has asked for the next
            self._timer_moment = float("inf")
            if self._display is not None and not self._closed:
                self._decided(self._display.tick(self._clock()))
        self._write_out()

    def _write_out(self) -> None:
        """Write what is lined up, in order."""
        if not self._outbox or self._writing_thread == threading.get_ident():
            return  # in the second case a stream's `write` led here, and the loop below goes on when it is back
        with self._write_lock:
            self._writing_thread = threading.get_ident()
            try:
                while self._outbox:
                    self._write(*self._outbox.popleft())
            finally:
                self._writing_thread = None

    def _write(self, stream: Stream, text: str) -> None:
        target = self._streams[stream]
        if target is None:
            target = sys.stdout if stream == "out" else sys.stderr
        try:
            try:
                target.write(text)
            except UnicodeEncodeError:
                encoding = target.encoding
                target.write(text.encode(encoding, "backslashreplace").decode(encoding))
            target.flush()
        except Exception:  # closed, broken, None, or a replacement of the program's that fails: printing never stops the work
            self._lost_texts += 1
