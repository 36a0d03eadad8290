"""What the dashboard prints while it serves: plain lines, and not too many.

What visitors send and what lies in records gets into messages, tracebacks above all. Some
characters a terminal obeys (they change its title, its colours, what is pasted), so these are
replaced; and who makes something go wrong again and again does not bury all else.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable

MOST = 20
"""Messages within the window."""
WINDOW_S = 60.0
LONGEST = 10_000
"""Characters of one."""
_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def install() -> None:
    """Print warnings and errors of this process that way."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter("syncline: %(message)s"))
    handler.addFilter(Sparing())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)


class PlainFormatter(logging.Formatter):
    """Without characters that a terminal obeys, but for the end of a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The message, with its traceback."""
        text = super().format(record)
        if len(text) > LONGEST:
            text = f"{text[: LONGEST // 2]}\n… {len(text) - LONGEST} characters are left out …\n{text[-LONGEST // 2 :]}"
        return _UNFIT.sub("\ufffd", text)


class Sparing(logging.Filter):
    """Lets so many messages through in a window; the first of the next one says how many there were
    besides.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._began = clock()
        self._passed = 0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is printed."""
        now = self._clock()
        if now - self._began >= WINDOW_S:
            self._began, self._passed = now, 0
        self._passed += 1
        if self._passed > MOST:
            self._left_out += 1
            return False
        if self._left_out:
            record.msg, record.args = (
                f"{record.getMessage()}\n({self._left_out} messages before this one are left out)",
                (),
            )
            self._left_out = 0
        return True
