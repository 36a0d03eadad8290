"""`OutputLabel`: the name at the start of each line that a trial writes, set with its first output.

Covered: `sys.stdout` and `sys.stderr`. Output that bypasses them, such as that of a C library, has
the label of the trial before, until a trial of the process writes to one of the two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TextIO

from syncline.core.lifecycle import ensure_engine


class OutputLabel:
    """Label of the output of this process."""

    def __init__(self) -> None:
        self.name = ""
        """Name of the current trial."""
        self.is_used = False
        """True if a trial of this process has written something."""
        self._set = ""

    def use(self) -> None:
        """Set the label, if it is not set yet. The engine needs a message for that."""
        if self._set != self.name:
            self._set = self.name
            ensure_engine().label_output(self.name)


class _WatchedStream:
    """Text stream that sets a label before it writes; all other attributes are those of the
    stream.
    """

    def __init__(self, stream: TextIO, label: OutputLabel) -> None:
        self._stream = stream
        self._label = label

    def write(self, text: str) -> int:
        """Write; return the number of characters."""
        if text:
            self._label.is_used = True
            self._label.use()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def watch_output(label: OutputLabel) -> Callable[[], None]:
    """Use the label for the next output; return a function that ends this."""
    before = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    for name, stream in before.items():
        setattr(sys, name, _WatchedStream(stream, label))

    def end() -> None:
        for name, stream in before.items():
            setattr(sys, name, stream)

    return end
