"""`TerminalPanel`: a run at the bottom of a terminal, drawn in place by a thread; what the program
prints goes above it.

At the end the panel makes place for a short summary. Not covered: terminals that cannot move the
cursor, which get lines.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.segment import Segments
from rich.text import Text

from syncline.train.console.display import INTERVAL_S, Drawing, print_line
from syncline.train.console.panel import panel, unfinished
from syncline.train.console.rows import closing_lines
from syncline.train.console.streams import AboveDisplay, redirected

_owning = threading.Lock()
_owner: weakref.ref[TerminalPanel] | None = None
"""Who has the terminal: a program may train in several threads. A panel that was never closed is
forgotten with its run.
"""


class _Screen:
    """A panel that is drawn already, below the lines that are unfinished at each moment."""

    def __init__(self, drawn: Segments, streams: Sequence[AboveDisplay]) -> None:
        self._drawn = drawn
        self._streams = streams

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from unfinished(
            [row for stream in self._streams for row in stream.unfinished], console.height
        )
        yield self._drawn


class TerminalPanel(Drawing):
    """Draws from the first snapshot on.

    Args:
        console: Where to draw.
        clock: Seconds, never backwards.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._console = console
        self._live: Live | None = None
        self._streams: Sequence[AboveDisplay] = ()
        self._screen = ExitStack()
        self._ended = threading.Event()
        self._lock = threading.RLock()  # for `close`, which may come from `atexit` too

    @classmethod
    def if_drawable(cls) -> TerminalPanel | None:
        """One on standard error; None if that is a terminal without a movable cursor, or something
        is drawn there already.
        """
        global _owner
        # Not the stream that is `sys.stderr` at each moment, which is a stand-in while the panel is
        # drawn.
        console = Console(file=sys.stderr, highlight=False)
        drawn_by_rich = any(isinstance(stream, FileProxy) for stream in (sys.stdout, sys.stderr))
        if drawn_by_rich or not console.is_terminal or console.is_dumb_terminal:
            return None
        with _owning:
            owner = _owner() if _owner is not None else None
            if owner is not None and not owner._ended.is_set():
                return None
            panel = cls(console)
            _owner = weakref.ref(panel)
            return panel

    def say(self, line: str) -> None:
        """Above the panel."""
        if self._live is None:
            print_line(line)
        else:
            self._print(line)

    def start(self) -> None:
        """Start to draw."""
        self._live = Live(
            get_renderable=self._picture,
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
            vertical_overflow="crop",
        )
        if _has_bars():
            self._console.line()
        atexit.register(self.close)  # of a program that ends while another thread is in `fit()`
        self._screen.callback(atexit.unregister, self.close)
        self._streams = self._screen.enter_context(redirected(self._console))
        self._screen.enter_context(self._live)
        self._live.refresh()
        threading.Thread(target=self._draw, name="syncline-panel", daemon=True).start()

    def close(self, *, interrupted: bool = False) -> None:
        """Take the panel away, and sum the run up if it is over."""
        with self._lock:
            self._ended.set()
            if self._live is None:
                return
            self._live = None
            self._screen.close()
            snapshot = self.final(interrupted=interrupted)
            for line in closing_lines(snapshot) if snapshot is not None else ():
                self._print(line)

    def _draw(self) -> None:
        """The thread's loop."""
        while not self._ended.wait(INTERVAL_S):
            live = self._live
            try:
                for stream in self._streams:
                    stream.settle()
                if live is not None and not self._ended.is_set():
                    live.refresh()
            except (OSError, ValueError):  # the terminal is gone; who prints next hears of it
                return

    def _picture(self) -> RenderableType:
        """Made anew with each refresh; what is printed between two of them is followed by the same
        one.
        """
        snapshot = self.current()
        if snapshot is None:
            return ""
        width, height = self._console.size
        drawn = self._console.render(panel(snapshot, width, height), self._console.options)
        return _Screen(Segments(list(drawn)), self._streams)

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


def _has_bars() -> bool:
    """Whether bars of tqdm are in the terminal, which leave the cursor in their line."""
    return bool(getattr(getattr(sys.modules.get("tqdm.std"), "tqdm", None), "_instances", ()))
