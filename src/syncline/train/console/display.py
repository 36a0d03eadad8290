"""`Display`: who shows a run to the person that runs it, and the displays that do not draw.

Panels are in `live` (terminals) and `notebook`; the libraries with which they draw are imported
when one is made.
"""

from __future__ import annotations

import importlib
import logging
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from syncline.core.host import is_interactive, is_terminal
from syncline.train.config import RunConfig
from syncline.train.console.snapshot import Phase, Snapshot
from syncline.train.workers.reservation import is_hosted

INTERVAL_S = 0.5
"""Snapshots are made, and screens are drawn, this often."""


class Display(ABC):
    """Used from one thread, but for `close`. Nothing here raises because of what is shown; writing
    to a stream that is gone may.
    """

    takes_snapshots: bool
    """Whether `show` does something; if not, nobody need call it."""

    @abstractmethod
    def say(self, line: str) -> None:
        """Something has happened: show it, and leave it there. May have several lines."""

    @abstractmethod
    def outline(self, line: str) -> None:
        """The same, of something that snapshots say as well."""

    @abstractmethod
    def show(self, snapshot: Snapshot) -> None:
        """This is how the run is now."""

    @abstractmethod
    def close(self, *, interrupted: bool = False) -> None:
        """Nothing more comes; may be called twice. Where the last snapshot was that of an end, it
        is summed up.

        interrupted: The program does not wait for the end: what was shown last stands for it.
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


class Silence(Display):
    """Shows nothing: trainings inside trials, and those that are to be quiet."""

    takes_snapshots = False

    def say(self, line: str) -> None:
        """Nothing; the run directory has it."""

    def outline(self, line: str) -> None:
        """Nothing."""

    def show(self, snapshot: Snapshot) -> None:
        """Nothing."""

    def close(self, *, interrupted: bool = False) -> None:
        """Nothing."""


class Lines(Display):
    """Plain lines on standard error, for pipes, files and continuous integration: a quiet run
    leaves three.
    """

    takes_snapshots = False

    def say(self, line: str) -> None:
        """Print it."""
        print_line(line)

    def outline(self, line: str) -> None:
        """Print it."""
        print_line(line)

    def show(self, snapshot: Snapshot) -> None:
        """Nothing: every line is kept where this is written to."""

    def close(self, *, interrupted: bool = False) -> None:
        """Nothing."""


class Drawing(Display):
    """What displays that draw have in common: the last snapshot, and the time since."""

    takes_snapshots = True

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: tuple[float, Snapshot] | None = None

    def outline(self, line: str) -> None:
        """Nothing: it is on the panel."""

    def show(self, snapshot: Snapshot) -> None:
        """Keep it; the first one starts the drawing."""
        is_first = self._last is None
        self._last = (self._clock(), snapshot)
        if is_first:
            self.start()

    def current(self) -> Snapshot | None:
        """The run as it must be now, for all that is known; None before the first snapshot. For any
        thread.
        """
        last = self._last
        return last[1].later(self._clock() - last[0]) if last is not None else None

    def final(self, *, interrupted: bool) -> Snapshot | None:
        """The last one, if it is that of an end, or becomes one by the interruption."""
        last = self.current()
        if last is not None and interrupted and not last.phase.is_end:
            last = replace(last, phase=Phase.INTERRUPTED)
        return last if last is not None and last.phase.is_end else None

    @abstractmethod
    def start(self) -> None:
        """Start to draw."""


def display_for(run_config: RunConfig | None = None, *, may_draw: bool = True) -> Display:
    """The display for where this program runs: a panel in terminals and notebooks, else plain
    lines.

    Args:
        run_config: Its `verbose=0`, or a level above INFO, makes all quiet.
        may_draw: False where the training function, and perhaps a debugger, has the terminal for
            itself.
    """
    if is_hosted() or is_quiet(run_config):
        return Silence()
    if may_draw and is_interactive(None):
        notebook: Display = importlib.import_module(
            "syncline.train.console.notebook"
        ).NotebookPanel()
        return notebook
    if may_draw and is_terminal(sys.stderr):
        panel: Display | None = importlib.import_module(
            "syncline.train.console.live"
        ).TerminalPanel.if_drawable()
        if panel is not None:
            return panel
    return Lines()


def is_quiet(run_config: RunConfig | None) -> bool:
    """Whether a run shows nothing but warnings and errors."""
    if run_config is None:
        return False
    level = run_config.logging_config.log_level if run_config.logging_config is not None else "INFO"
    return run_config.verbose == 0 or logging.getLevelName(level) > logging.INFO


def print_line(text: str) -> None:
    """Show a line in the terminal, beside what the program prints."""
    print(text, file=sys.stderr, flush=True)
