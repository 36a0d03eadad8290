"""`Display`: contract of the displays of a run, the displays that do not draw, and the choice of
one.

Panels are in `terminal_panel` and `notebook_panel`. Their libraries are imported on first use.
"""

from __future__ import annotations

import logging
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from syncline.core.host import is_interactive, is_terminal
from syncline.core.live_region import print_line
from syncline.optional import load
from syncline.train.console.snapshot import Phase, Snapshot
from syncline.train.run_config import RunConfig
from syncline.train.workers.reservation import is_hosted

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
        """Print a note whose content snapshots have as well."""

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


def display_for(run_config: RunConfig | None = None, *, may_draw: bool = True) -> Display:
    """Return the display for this program: a panel in terminals and notebooks, otherwise lines.

    Args:
        run_config: With `verbose=0` or a log level above INFO, nothing is displayed.
        may_draw: False if the training function runs in this process and uses its terminal.
    """
    if is_hosted() or is_quiet(run_config):
        return NullDisplay()
    if may_draw and is_interactive(None):
        notebook: Display = load(
            "syncline.train.console.notebook_panel",
            purpose="the display in notebooks",
            install="ipython",
            library="IPython",
        ).NotebookPanel()
        return notebook
    if may_draw and is_terminal(sys.stderr):
        panel: Display | None = load(
            "syncline.train.console.terminal_panel",
            purpose="the display in terminals",
            install="rich",
            library="rich",
        ).TerminalPanel.if_drawable()
        if panel is not None:
            return panel
    return LineDisplay()


def is_quiet(run_config: RunConfig | None) -> bool:
    """Return True if a run shows only warnings and errors."""
    if run_config is None:
        return False
    level = run_config.logging_config.log_level if run_config.logging_config is not None else "INFO"
    return run_config.verbose == 0 or logging.getLevelName(level) > logging.INFO
