"""What the program prints while a display is drawn at the bottom of the terminal: whole lines go
above it.

`redirected` puts an `AboveDisplay` in the place of `sys.stdout` and `sys.stderr`, where they are
terminals, and of the same streams in the handlers of `logging` that the program has set up. What is
unfinished, progress bars above all, may be shown by the display. Not covered: what writes to the
file descriptors themselves.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from syncline.train.console.unfinished import Unfinished


class AboveDisplay(io.TextIOBase):
    """Stands for a stream. Lines are printed when they end; of one that is drawn over itself with
    carriage returns, its last state.
    """

    def __init__(self, stream: TextIO, console: Console, lock: threading.RLock) -> None:
        """stream: What it stands for. console: The one that draws the display. lock: Shared by all
        streams of a display. A signal handler that prints may come in between in the same thread.
        """
        self.unfinished: tuple[str, ...] = ()
        """Rows that have not been printed; may be read from any thread without a lock."""
        self.others: Sequence[AboveDisplay] = ()
        """The other streams of the display."""
        self._stream = stream
        self._console = console
        self._rows = Unfinished()
        self._has_news = False
        self._lock = lock

    def write(self, text: str) -> int:
        """Take text, and print the lines that it ends."""
        with self._lock:
            self._has_news = True
            lines = self._rows.take(text)
            self.unfinished = self._rows.rows
            if lines:
                for other in self.others:
                    other._print(other._rows.settle())
                self._print(lines)
        return len(text)

    def settle(self) -> None:
        """Called now and then: print bars whose lines have ended, if nothing was written since the
        last time.
        """
        with self._lock:
            if not self._has_news:
                self._print(self._rows.settle())
            self._has_news = False

    def finish(self) -> None:
        """Print what has not ended."""
        with self._lock:
            self._print(self._rows.finish())

    def flush(self) -> None:
        """Nothing is held back but what has not ended."""

    def isatty(self) -> bool:
        """False: nobody may move the cursor here, so progress bars stay away."""
        return False

    def writable(self) -> bool:
        """True."""
        return True

    def fileno(self) -> int:
        """The stream's."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The stream's."""
        return self._stream.encoding

    @property
    def buffer(self) -> Any:
        """The stream's."""
        return self._stream.buffer

    def _print(self, lines: list[str]) -> None:
        self.unfinished = self._rows.rows
        if lines:
            text = Text("\n").join(map(Text.from_ansi, lines))
            self._console.print(text, soft_wrap=True, markup=False, highlight=False, emoji=False)


@contextmanager
def redirected(console: Console) -> Iterator[Sequence[AboveDisplay]]:
    """Until the end of the block, what is printed goes above the display of `console`; the value is
    what stands for the streams.
    """
    streams = {
        name: stream
        for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr))
        if stream is not None and stream.isatty()
    }
    lock = threading.RLock()
    replaced = {name: AboveDisplay(stream, console, lock) for name, stream in streams.items()}
    for stand_in in replaced.values():
        stand_in.others = [other for other in replaced.values() if other is not stand_in]
    by_stream = {id(stream): replaced[name] for name, stream in streams.items()}
    handlers = [
        (handler, handler.stream) for handler in _handlers() if id(handler.stream) in by_stream
    ]
    for name, stand_in in replaced.items():
        setattr(sys, name, stand_in)
    for handler, stream in handlers:
        handler.setStream(by_stream[id(stream)])
    try:
        yield list(replaced.values())
    finally:
        for stand_in in replaced.values():
            stand_in.finish()
        for handler, stream in handlers:
            if isinstance(handler.stream, AboveDisplay):
                handler.setStream(stream)
        for name, stream in streams.items():
            if (
                getattr(sys, name) is replaced[name]
            ):  # else the program has put something of its own there
                setattr(sys, name, stream)


def _handlers() -> list[logging.StreamHandler[Any]]:
    """Of the root logger and of ours, those that write to streams."""
    handlers = [*logging.getLogger().handlers, *logging.getLogger("syncline").handlers]
    return [handler for handler in handlers if isinstance(handler, logging.StreamHandler)]
