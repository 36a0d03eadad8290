"""Lines that many workers print at the same moment are shown once, and counted. Pure: the moment
comes with every call.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 0.3
"""How long after a line the same line from other workers is folded into it."""
MOST_LINES = 10_000
"""Lines that are remembered at most; in a flood the oldest are forgotten before their window
ends.
"""


class _Printed:
    """A line that was printed a moment ago."""

    __slots__ = ("content", "deadline", "number", "prefix", "repeats")

    def __init__(self, content: str, number: int, deadline: float) -> None:
        self.content = content
        self.number = number  # the worker that was shown
        self.deadline = deadline
        self.repeats = 0
        self.prefix = ""  # of the worker that repeated it last

    def summary(self) -> str:
        suffix = f" [repeated {self.repeats}x across workers]" if self.repeats > 1 else ""
        return f"{self.prefix}{self.content}{suffix}\n"


class Folding:
    """The lines of one stream that were printed within the last moment."""

    def __init__(self) -> None:
        self._known: dict[str, _Printed] = {}
        self._by_age: deque[_Printed] = deque()
        self._folded: deque[_Printed] = (
            deque()
        )  # those with repeats, in the order of their first one
        self.total = 0
        """Lines folded so far."""

    @property
    def next_moment(self) -> float | None:
        """When `expire` has something to tell, None for never."""
        return self._folded[0].deadline if self._folded else None

    def is_repeat(self, content: str, number: int, prefix: str, now: float) -> bool:
        """Whether another worker's same line was printed a moment ago: then it is counted, else it
        is to be printed now.
        """
        known = self._known.get(content)
        if known is None:
            self._remember(content, number, now)
            return False
        if known.number == number:
            return False
        if not known.repeats:
            self._folded.append(known)
        known.repeats += 1
        known.prefix = prefix
        self.total += 1
        return True

    def note(self, content: str, number: int, moment: float) -> None:
        """A line that was printed at `moment` without having been asked for."""
        if content not in self._known:
            self._remember(content, number, moment)

    def expire(self, now: float) -> list[str]:
        """What to print for lines whose window is over: one line for all repeats, the line itself
        if there was a single one.
        """
        by_age = self._by_age
        told: list[str] = []
        while by_age and (by_age[0].deadline <= now or len(by_age) > MOST_LINES):
            printed = by_age.popleft()
            del self._known[printed.content]
            if printed.repeats:
                told.append(printed.summary())
                self._folded.remove(printed)
        return told

    def flush(self) -> list[str]:
        """End every window now."""
        return self.expire(float("inf"))

    def _remember(self, content: str, number: int, moment: float) -> None:
        printed = _Printed(content, number, moment + WINDOW_S)
        self._known[content] = printed
        self._by_age.append(printed)
