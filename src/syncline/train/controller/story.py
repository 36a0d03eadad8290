"""What a run in a process of its own tells the programs that are attached to it: lines to show,
then how it ended.

`Story` keeps it and hands it to any number of readers, each from where it stands; a reader that
comes late gets what it has missed. Beside that there are pictures of the run, of which each takes
the place of the one before, for readers that draw. No I/O: the actor puts, its streams read.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from syncline.train.console.display import Display
from syncline.train.console.snapshot import Snapshot

KEPT_LINES = 500
"""So many of the last lines are kept for readers that come later."""
MAX_READERS = 12
"""One reader more, and the oldest is sent away: readers whose programs have died do not say so."""


@dataclass(frozen=True, kw_only=True)
class Attached:
    """The first thing that a reader is told."""

    starter: str
    """Who started the run: the `client` that its actor was made with."""
    path: str
    """The run directory, for people."""
    fetched: bool
    """The run is over, and somebody has its result: this is only its actor's last moment."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Something to show."""

    number: int
    """From 1."""
    text: str
    is_outline: bool = False
    """Pictures say the same."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """How the run is now."""

    snapshot: Snapshot


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The run is over; nothing follows."""

    result: bytes | None = None
    """The pickled `Result`, without a return value, of a run that finished."""
    return_value: bytes | None = None
    """Pickled, what rank 0 returned."""
    error: bytes | None = None
    """What `fit()` raises, as `core.error_frames.pack_error` makes it."""
    aborted: bool = False
    """A program that was attached has ended the run."""


@dataclass(frozen=True, kw_only=True)
class SentAway:
    """Nothing more is told on this stream, as there are too many readers: ask again."""


Told = Attached | Line | Picture | Ended | SentAway


class Story:
    """May be used from several threads."""

    def __init__(self, *, kept_lines: int = KEPT_LINES, max_readers: int = MAX_READERS) -> None:
        self._lines: deque[Line] = deque(maxlen=kept_lines)
        self._count = 0
        self._picture: Picture | None = None
        self._ended: Ended | None = None
        self._max_readers = max_readers
        self._readers: deque[str] = deque()  # the oldest first
        self._waiting_for: set[str] = set()
        self._fetched = False
        self._changed = threading.Condition()

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self._ended is not None

    @property
    def fetched(self) -> bool:
        """Whether the run is over and some reader has its end."""
        return self._fetched

    def tell(self, text: str, *, is_outline: bool = False) -> None:
        """Add a line."""
        with self._changed:
            self._count += 1
            self._lines.append(Line(number=self._count, text=text, is_outline=is_outline))
            self._changed.notify_all()

    def picture(self, snapshot: Snapshot) -> None:
        """Put the newest picture in the place of the one before."""
        with self._changed:
            self._picture = Picture(snapshot=snapshot)
            self._changed.notify_all()

    def end(self, ended: Ended) -> None:
        """The run is over."""
        with self._changed:
            self._ended = ended
            self._changed.notify_all()

    def read(
        self, reader: str, after: int, *, pictures: bool = False
    ) -> Iterator[tuple[Told, ...]]:
        """What was told after line `after`, waited for, in batches, until the end; `pictures`:
        those too, as far as the reader keeps up.
        """
        seen: Picture | None = None
        with self._changed:
            self._enter(reader)
        while True:
            with self._changed:
                while (
                    self._count <= after
                    and self._ended is None
                    and reader in self._readers
                    and (not pictures or self._picture is seen)
                ):
                    self._changed.wait()
                batch: tuple[Told, ...] = tuple(line for line in self._lines if line.number > after)
                if pictures and self._picture is not None and self._picture is not seen:
                    seen = self._picture
                    batch = (*batch, seen)
                after, ended = self._count, self._ended
                sent_away = reader not in self._readers and ended is None
            if ended is not None or sent_away:
                yield (*batch, ended or SentAway())
                return
            yield batch

    def confirm(self, reader: str) -> None:
        """This reader has the end."""
        with self._changed:
            self._fetched = True
            self._leave(reader)
            self._changed.notify_all()

    def wait_until_ended(self, timeout_s: float) -> bool:
        """Whether the run has ended when this returns, after at most so long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended is not None, timeout_s)

    def wait_until_fetched(self, first_s: float, others_s: float) -> None:
        """Return when some reader has the end, after at most `first_s`, and then the others have it
        too, after at most `others_s`.
        """
        with self._changed:
            if self._changed.wait_for(lambda: self._fetched, first_s):
                self._changed.wait_for(lambda: not self._waiting_for, others_s)

    def _enter(self, reader: str) -> None:
        self._leave(reader)
        self._readers.append(reader)
        self._waiting_for.add(reader)
        if len(self._readers) > self._max_readers:
            self._leave(self._readers[0])
            self._changed.notify_all()

    def _leave(self, reader: str) -> None:
        self._waiting_for.discard(reader)
        if reader in self._readers:
            self._readers.remove(reader)


class StoryDisplay(Display):
    """Shows a run by telling it: the displays are in the programs that are attached."""

    takes_snapshots = True

    def __init__(self, story: Story) -> None:
        self._story = story

    def say(self, line: str) -> None:
        """Tell it."""
        self._story.tell(line)

    def outline(self, line: str) -> None:
        """Tell it to those that do not draw."""
        self._story.tell(line, is_outline=True)

    def show(self, snapshot: Snapshot) -> None:
        """Tell it to those that draw."""
        self._story.picture(snapshot)

    def close(self, *, interrupted: bool = False) -> None:
        """Nothing: the story's end follows."""
