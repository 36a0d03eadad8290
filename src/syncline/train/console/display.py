"""`Display`: contract of the displays of a run, the displays that do not draw, and the base class
of drawing displays. Panels are in `terminal_panel` and `notebook_panel`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from syncline.core.live_region import print_line
from syncline.train.console.snapshot import Phase, Snapshot

INTERVAL_S = 0.5
"""Seconds between snapshots, and between refreshes of a screen."""


class Display(ABC):
    """Shows one run. Used from one thread, except for `close`.

    No content raises an error. Writing to a closed stream may.
    """

    takes_snapshots: bool
    """False if `show` has no effect and need not be called."""

    @abstractmethod
    def print_event(self, text: str) -> None:
        """Print a permanent note about an event, of one or more lines."""

    @abstractmethod
    def print_status(self, text: str) -> None:
        """Print a note that is also part of snapshots."""

    @abstractmethod
    def show(self, snapshot: Snapshot) -> None:
        """Show the current state of the run."""

    @abstractmethod
    def close(self, *, interrupted: bool = False) -> None:
        """End the display, with a summary if the last snapshot is final. May be called twice.

        Args:
            interrupted: The program stops waiting for the run: treat the last snapshot as final.
        """

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(interrupted=isinstance(error, KeyboardInterrupt))


class NullDisplay(Display):
    """Shows nothing: for training runs inside trials, and quiet ones."""

    takes_snapshots = False

    def print_event(self, text: str) -> None:
        """Do nothing; the run directory has the event."""

    def print_status(self, text: str) -> None:
        """Do nothing."""

    def show(self, snapshot: Snapshot) -> None:
        """Do nothing."""

    def close(self, *, interrupted: bool = False) -> None:
        """Do nothing."""


class LineDisplay(NullDisplay):
    """Prints lines on standard error, for pipes, files and continuous integration. A run without
    events prints three.
    """

    def print_event(self, text: str) -> None:
        """Print it."""
        print_line(text)

    def print_status(self, text: str) -> None:
        """Print it."""
        print_line(text)


class LiveDisplay(Display):
    """Base class of displays that draw."""

    takes_snapshots = True

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: tuple[float, Snapshot] | None = None

    def print_status(self, text: str) -> None:
        """Do nothing: the panel shows it."""

    def show(self, snapshot: Snapshot) -> None:
        """Store the snapshot; the first one starts the drawing."""
        is_first = self._last is None
        self._last = (self._clock(), snapshot)
        if is_first:
            self.start()

    def current(self) -> Snapshot | None:
        """Return the latest snapshot with its times advanced to now. For any thread."""
        last = self._last
        return last[1].later(self._clock() - last[0]) if last is not None else None

    def final(self, *, interrupted: bool) -> Snapshot | None:
        """Return the latest snapshot if the run has ended or was interrupted."""
        last = self.current()
        if last is not None and interrupted and not last.phase.is_end:
            last = replace(last, phase=Phase.INTERRUPTED)
        return last if last is not None and last.phase.is_end else None

    @abstractmethod
    def start(self) -> None:
        """Start to draw."""
