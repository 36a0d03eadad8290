"""Event stream of a run whose controller is an actor: lines to display, then the outcome.

`EventStream` keeps the events and delivers them to any number of readers, each at its own position;
a late reader gets the events that it has missed. For readers that draw, there are also snapshots of
the run, each of which replaces the one before. No I/O: the actor puts, and its streams read.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from syncline.records import dataclass
from syncline.train.console.display import Display
from syncline.train.console.snapshot import Snapshot

KEPT_LINES = 500
"""Lines kept for late readers."""
MAX_READERS = 12
"""Concurrent readers. One more evicts the oldest, since dead programs do not unregister."""


@dataclass(frozen=True, kw_only=True)
class Attached:
    """First event of a reader."""

    starter: str
    """Program that started the run: the `client` of its actor."""
    path: str
    """Run directory, for display."""
    fetched: bool
    """True if the run has ended and a reader has its outcome; the actor is about to exit."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line to display."""

    number: int
    """Number of the line, from 1."""
    text: str
    is_status: bool = False
    """True if snapshots show the same."""


@dataclass(frozen=True, kw_only=True)
class SnapshotTaken:
    """The current state of the run."""

    snapshot: Snapshot


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The run has ended. Last event."""

    result: bytes | None = None
    """Pickled `Result` of a finished run, without its return value."""
    return_value: bytes | None = None
    """Pickled return value of rank 0."""
    error: bytes | None = None
    """Error of `fit()`, packed by `core.error_frames.pack_error`."""
    aborted: bool = False
    """True if an attached program has aborted the run."""


@dataclass(frozen=True, kw_only=True)
class Evicted:
    """This stream ends because there are too many readers: start another one."""


StreamEvent = Attached | Line | SnapshotTaken | Ended | Evicted


class EventStream(Display):
    """Events of one run, which attached programs display. Thread-safe."""

    takes_snapshots = True

    def __init__(self, *, kept_lines: int = KEPT_LINES, max_readers: int = MAX_READERS) -> None:
        self._lines: deque[Line] = deque(maxlen=kept_lines)
        self._count = 0
        self._snapshot: SnapshotTaken | None = None
        self._ended: Ended | None = None
        self._max_readers = max_readers
        self._readers: deque[str] = deque()  # oldest first
        self._unconfirmed: set[str] = set()
        self._fetched = False
        self._changed = threading.Condition()

    @property
    def ended(self) -> bool:
        """True if the run has ended."""
        return self._ended is not None

    @property
    def fetched(self) -> bool:
        """True if a reader has confirmed the outcome."""
        return self._fetched

    def print_event(self, text: str) -> None:
        """Add a line."""
        self._put_line(text, is_status=False)

    def print_status(self, text: str) -> None:
        """Add a line for readers that do not draw."""
        self._put_line(text, is_status=True)

    def show(self, snapshot: Snapshot) -> None:
        """Replace the snapshot, which is for readers that draw."""
        with self._changed:
            self._snapshot = SnapshotTaken(snapshot=snapshot)
            self._changed.notify_all()

    def close(self, *, interrupted: bool = False) -> None:
        """Do nothing: the outcome follows."""

    def end(self, ended: Ended) -> None:
        """Set the outcome."""
        with self._changed:
            self._ended = ended
            self._changed.notify_all()

    def read(
        self, reader: str, after: int, *, snapshots: bool = False
    ) -> Iterator[tuple[StreamEvent, ...]]:
        """Yield batches of the events after line `after`, to the end of the run.

        With `snapshots`, also those snapshots that the reader is fast enough for.
        """
        seen: SnapshotTaken | None = None
        with self._changed:
            self._register(reader)
        while True:
            with self._changed:
                while (
                    self._count <= after
                    and self._ended is None
                    and reader in self._readers
                    and (not snapshots or self._snapshot is seen)
                ):
                    self._changed.wait()
                batch: tuple[StreamEvent, ...] = tuple(
                    line for line in self._lines if line.number > after
                )
                if snapshots and self._snapshot is not None and self._snapshot is not seen:
                    seen = self._snapshot
                    batch = (*batch, seen)
                after, ended = self._count, self._ended
                is_evicted = reader not in self._readers and ended is None
            if ended is not None or is_evicted:
                yield (*batch, ended or Evicted())
                return
            yield batch

    def confirm(self, reader: str) -> None:
        """Record that a reader has the outcome."""
        with self._changed:
            self._fetched = True
            self._unregister(reader)
            self._changed.notify_all()

    def wait_until_ended(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s`; return True if the run has ended."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended is not None, timeout_s)

    def wait_until_fetched(self, first_s: float, others_s: float) -> None:
        """Wait up to `first_s` until a reader has the outcome, then up to `others_s` for the
        others.
        """
        with self._changed:
            if self._changed.wait_for(lambda: self._fetched, first_s):
                self._changed.wait_for(lambda: not self._unconfirmed, others_s)

    def _put_line(self, text: str, *, is_status: bool) -> None:
        with self._changed:
            self._count += 1
            self._lines.append(Line(number=self._count, text=text, is_status=is_status))
            self._changed.notify_all()

    def _register(self, reader: str) -> None:
        self._unregister(reader)
        self._readers.append(reader)
        self._unconfirmed.add(reader)
        if len(self._readers) > self._max_readers:
            self._unregister(self._readers[0])
            self._changed.notify_all()

    def _unregister(self, reader: str) -> None:
        self._unconfirmed.discard(reader)
        if reader in self._readers:
            self._readers.remove(reader)
