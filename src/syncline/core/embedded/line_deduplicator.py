"""Equal lines that several workers print within a short time: shown once, with a count.

Not covered: lines that differ in a number or a time.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 0.3
"""Seconds after a line within which equal lines of other workers count as repeats."""
MOST_LINES = 10_000
"""Largest number of remembered lines; in a flood the oldest are forgotten early."""


class _Printed:
    """A recently printed line."""

    __slots__ = ("content", "deadline", "number", "prefix", "repeats")

    def __init__(self, content: str, number: int, deadline: float) -> None:
        self.content = content
        self.number = number  # the worker whose line was shown
        self.deadline = deadline
        self.repeats = 0
        self.prefix = ""  # of the last worker that repeated it

    def summary(self) -> str:
        suffix = f" [repeated {self.repeats}x across workers]" if self.repeats > 1 else ""
        return f"{self.prefix}{self.content}{suffix}\n"


class LineDeduplicator:
    """Counts equal lines that several workers print to one stream within a short time."""

    def __init__(self) -> None:
        self._known: dict[str, _Printed] = {}
        self._by_age: deque[_Printed] = deque()
        self._repeated: deque[_Printed] = deque()  # lines with repeats, by time of the first
        self.total = 0
        """Number of repeats."""

    @property
    def next_moment(self) -> float | None:
        """Time of the next `expire` with a result, or None."""
        return self._repeated[0].deadline if self._repeated else None

    def is_repeat(self, content: str, number: int, prefix: str, now: float) -> bool:
        """Return True if another worker just printed this line; the repeat is counted."""
        known = self._known.get(content)
        if known is None:
            self._remember(content, number, now)
            return False
        if known.number == number:
            return False
        if not known.repeats:
            self._repeated.append(known)
        known.repeats += 1
        known.prefix = prefix
        self.total += 1
        return True

    def note(self, content: str, number: int, moment: float) -> None:
        """Remember a line that was printed without `is_repeat`."""
        if content not in self._known:
            self._remember(content, number, moment)

    def expire(self, now: float) -> list[str]:
        """Return summaries of repeated lines whose window has ended; of one repeat, the line."""
        by_age = self._by_age
        summaries: list[str] = []
        while by_age and (by_age[0].deadline <= now or len(by_age) > MOST_LINES):
            printed = by_age.popleft()
            del self._known[printed.content]
            if printed.repeats:
                summaries.append(printed.summary())
                self._repeated.remove(printed)
        return summaries

    def flush(self) -> list[str]:
        """End all windows and return the summaries."""
        return self.expire(float("inf"))

    def _remember(self, content: str, number: int, moment: float) -> None:
        printed = _Printed(content, number, moment + WINDOW_S)
        self._known[content] = printed
        self._by_age.append(printed)
