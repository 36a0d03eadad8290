"""`TerminalPanel`: a run at the bottom of a terminal.

At the end a short summary replaces the panel. Terminals without cursor movement use lines.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console, RenderableType

from syncline.core.live_region import LiveRegion, print_line
from syncline.train.console.display import INTERVAL_S, LiveDisplay
from syncline.train.console.panel import panel
from syncline.train.console.rows import closing_lines


class TerminalPanel(LiveDisplay):
    """Panel that is drawn from the first snapshot on.

    Args:
        console: Console of the terminal.
        clock: Monotonic time in seconds.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._console = console
        self._region = LiveRegion(console, interval_s=INTERVAL_S, transient=True)

    @classmethod
    def if_drawable(cls) -> TerminalPanel | None:
        """Return a panel on standard error; None if its terminal cannot move the cursor, or
        another panel or rich display uses it.
        """
        # Bind the current stream: `sys.stderr` is replaced during the drawing.
        drawn = cls(Console(file=sys.stderr, highlight=False))
        return drawn if drawn._region.claim() else None

    def print_event(self, text: str) -> None:
        """Print above the panel."""
        if self._region.is_started:
            self._region.print(text)
        else:
            print_line(text)

    def start(self) -> None:
        """Start to draw, and redirect the program's output."""
        self._region.start(self._render)

    def close(self, *, interrupted: bool = False) -> None:
        """Remove the panel, and print a summary if the run is over."""
        if self._region.close():
            snapshot = self.final(interrupted=interrupted)
            for line in closing_lines(snapshot) if snapshot is not None else ():
                self._region.print(line)

    def _render(self) -> RenderableType:
        snapshot = self.current()
        return panel(snapshot, *self._console.size) if snapshot is not None else ""
