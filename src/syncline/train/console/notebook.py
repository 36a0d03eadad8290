"""`NotebookPanel`: a run in the output of a notebook's cell, brought up to date in place by a
thread.
"""

from __future__ import annotations

import contextvars
import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

from syncline.train.console.display import Drawing, print_line
from syncline.train.console.pages import page
from syncline.train.console.snapshot import Snapshot

INTERVAL_S = 1.0
"""Between two pictures: each is a message to the browser."""


class NotebookPanel(Drawing):
    """Shows from the first snapshot on. Lines about what happens are printed below it.

    Args:
        clock: Seconds, never backwards.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._shown: Any = importlib.import_module("IPython.display")
        self._handle: Any = None
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def say(self, line: str) -> None:
        """In the cell's output."""
        print_line(line)

    def start(self) -> None:
        """Start to draw."""
        self._draw(self.current())
        # The kernel finds the cell that output belongs to in the context.
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(self._draw_until_end,), name="syncline-panel", daemon=True
        ).start()

    def close(self, *, interrupted: bool = False) -> None:
        """The last picture stays: of a run that is over, its summary."""
        with self._lock:
            if self._handle is None or self._ended.is_set():
                return
            self._ended.set()
            self._draw(self.final(interrupted=interrupted))

    def _draw_until_end(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            with self._lock:
                if not self._ended.is_set():
                    self._draw(self.current())

    def _draw(self, snapshot: Snapshot | None) -> None:
        if snapshot is None:
            return
        html = self._shown.HTML(page(snapshot))
        if self._handle is None:
            self._handle = self._shown.display(html, display_id=True)
        else:
            self._handle.update(html)
