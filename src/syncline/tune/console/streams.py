"""What the program prints while a display is drawn at the bottom of the terminal: whole lines go above it.

`redirected` puts an `AboveDisplay` in the place of `sys.stdout` and `sys.stderr`, where they are terminals, and of the same streams in the
handlers of `logging` that the program has set up. Not covered: what writes to the file descriptors themselves.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text


class AboveDisplay(io.TextIOBase):
    """Stands for a stream. Lines are printed when they end; of one that is drawn over itself with carriage returns, its last state."""

    def __init__(self, stream: TextIO, console: Console) -> None:
        """
        stream: What it stands for.
        console: The one that draws the display.
        """
        self._stream = stream
        self._console = console
        self._unfinished = ""
        # A signal handler that prints may come in between in the same thread.
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Take text, and print the lines that it ends."""
        with self._lock:
            *lines, rest = (self._unfinished + text).split("\n")
            if "\r" in rest:  # a bar that is redrawn for hours must not grow
                rest = _visible(rest) + ("\r" if rest.endswith("\r") else "")
            self._unfinished = rest
            if lines:
                self._print(lines)
        return len(text)

    def finish(self) -> None:
        """Print the line that has not ended."""
        with self._lock:
            if self._unfinished.strip():
                self._print([self._unfinished])
            self._unfinished = ""

    def flush(self) -> None:
        """Nothing is held back but a line that has not ended."""

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
        text = Text("\n").join(Text.from_ansi(_visible(line)) for line in lines)
        self._console.print(text, soft_wrap=True, markup=False, highlight=False, emoji=False)


@contextmanager
def redirected(console: Console) -> Iterator[None]:
    """Until the end of the block, what is printed goes above the display of `console`."""
    streams = {name: stream for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)) if stream is not None and stream.isatty()}
    replaced = {name: AboveDisplay(stream, console) for name, stream in streams.items()}
    by_stream = {id(stream): replaced[name] for name, stream in streams.items()}
    handlers = [(handler, handler.stream) for handler in _handlers() if id(handler.stream) in by_stream]
    for name, stand_in in replaced.items():
        setattr(sys, name, stand_in)
    for handler, stream in handlers:
        handler.setStream(by_stream[id(stream)])
    try:
        yield
    finally:
        for stand_in in replaced.values():
            stand_in.finish()
        for handler, stream in handlers:
            if isinstance(handler.stream, AboveDisplay):
                handler.setStream(stream)
        for name, stream in streams.items():
            if getattr(sys, name) is replaced[name]:  # else the program has put something of its own there
                setattr(sys, name, stream)


def _handlers() -> list[logging.StreamHandler[Any]]:
    """Of the root logger and of ours, those that write to streams."""
    handlers = [*logging.getLogger().handlers, *logging.getLogger("syncline").handlers]
    return [handler for handler in handlers if isinstance(handler, logging.StreamHandler)]


def _visible(line: str) -> str:
    """What a terminal shows of a line that was drawn over itself."""
    return line.rstrip("\r").rpartition("\r")[2]
