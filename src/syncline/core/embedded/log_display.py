"""Display of worker output on the driver's terminal: output in, texts out, the clock injected.

While a single worker has written, its text passes unchanged. From the second worker on each line
has its worker's label as prefix, and equal lines of many workers are shown once with a count. An
unfinished line (a prompt, a row of dots, a progress bar) is drawn at the cursor and redrawn as it
changes; output of another worker begins a new line, and the interrupted worker may draw again after
a delay. Many bars together therefore give a few lines a second, each with one state of one bar.

Not covered: programs that move the cursor up and down; these movements are dropped once several
workers write.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

Stream = Literal["out", "err"]
"""A worker's standard output or standard error."""

PARTIAL_S = 0.1
"""Seconds that an unfinished line waits for its end before it is shown."""
REDRAW_S = 0.5
"""Seconds until an interrupted line is drawn again, times the number of waiting lines."""
LONGEST_LINE = 65_536
"""Longest unfinished line, in characters; a longer one is shown in pieces."""
_REMEMBERED_TEXTS = 16
WINDOW_S = 0.3
"""Seconds after a line within which equal lines of other workers count as repeats."""
MOST_LINES = 10_000
"""Largest number of remembered lines; in a flood the oldest are forgotten early."""

# nested bars move down one line for each time that they moved up
_UNDONE_NEWLINES = re.compile("(?:\x1b\\[A)+\n+")
_MOVEMENTS = re.compile("\x1b\\[[0-9;]*[ABEFGHJSTdfsu]")

Texts = list[tuple[Stream, str]]
"""Texts to write, in order."""


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


@dataclass(slots=True, eq=False)
class _Line:
    """The unfinished line of one stream of one worker."""

    number: int
    screen: _Screen
    current: str = ""
    """Visible text, and a carriage return if the cursor is at the start of the line."""
    held: str = ""
    """Text that was not passed on, while only one worker writes."""
    is_update: bool = False
    """True if it was drawn again after a carriage return."""
    continues: bool = False
    """True if its beginning was too long and has been shown."""
    arrived: float = 0.0
    """Arrival of the oldest text that is not shown."""
    drawn_at: float = float("-inf")


@dataclass(slots=True, eq=False)
class _Screen:
    """One stream of the driver."""

    stream: Stream
    pieces: list[str] = field(default_factory=list)
    deduplicator: LineDeduplicator = field(default_factory=LineDeduplicator)
    cursor: _Line | None = None
    """The unfinished line with the cursor; None at the start of a line."""
    shown: str = ""
    """Text of that line left of the cursor."""
    returned: bool = False
    """True if the cursor is at the start of that line."""

    def draw(self, line: _Line, prefix: str, content: str) -> None:
        """Change the line on the terminal to `content` with the fewest characters."""
        if self.cursor is not line:
            self.pieces.append(
                f"\n{prefix}{content}" if self.cursor is not None else prefix + content
            )
        elif not self.returned and content.startswith(self.shown):
            self.pieces.append(content[len(self.shown) :])
        else:
            self.pieces.append(
                f"{'' if self.returned else chr(13)}{prefix}{content.ljust(len(self.shown))}"
            )
        self.cursor, self.shown, self.returned = line, content, False

    def finish(self, line: _Line, prefix: str, content: str) -> None:
        """Draw the line and end it."""
        self.draw(line, prefix, content)
        self.pieces.append("\n")
        self.cursor = None

    def leave_line(self) -> None:
        """Move the cursor to the start of a line."""
        if self.cursor is not None:
            self.pieces.append("\n")
            self.cursor = None

    def print(self, texts: list[str]) -> None:
        """Print whole lines that belong to no worker."""
        if texts:
            self.leave_line()
            self.pieces += texts


class Display:
    """The driver's two streams, shared by many workers.

    Not thread-safe, except that `name` may be called at any time.
    """

    def __init__(self) -> None:
        self._screens: dict[Stream, _Screen] = {"out": _Screen("out"), "err": _Screen("err")}
        self._prefixes: dict[int, str] = {}
        self._prefixed: set[int] = set()  # workers whose lines always have a prefix
        self._lines: dict[tuple[int, Stream], _Line] = {}
        self._waiting: dict[_Line, None] = {}  # lines with unshown text, oldest first
        self._only: int | None = None  # the first worker that wrote
        self._is_shared = False
        # whole lines of the only worker, to detect repeats by the second one
        self._before: deque[tuple[float, Stream, str]] = deque(maxlen=_REMEMBERED_TEXTS)

    @property
    def repeated_lines(self) -> int:
        """Number of lines that were counted instead of shown."""
        return sum(screen.deduplicator.total for screen in self._screens.values())

    def name(self, number: int, label: str, *, always: bool = False) -> None:
        """Set the prefix of the worker's lines; with `always`, also while no other one writes."""
        self._prefixes[number] = f"[{label}] " if always else f"({label}) "
        if always:
            self._prefixed.add(number)

    def write(self, number: int, stream: Stream, text: str, now: float) -> Texts:
        """Add output of a worker."""
        line = self._lines.get((number, stream))
        if line is None:
            line = self._lines[number, stream] = _Line(number, self._screens[stream])
            if self._only is None:
                self._only = number
            if not self._is_shared and (number != self._only or number in self._prefixed):
                self._share()
        if self._is_shared:
            self._take(line, text, now)
        else:
            self._pass_on(line, text, now)
        return self._collect()

    def tick(self, now: float) -> Texts:
        """Show the lines whose delay has passed."""
        for screen in self._screens.values():
            screen.print(screen.deduplicator.expire(now))
        for line in list(self._waiting):
            if self._due(line) <= now:
                self._show(line, now)
        return self._collect()

    def end(self, number: int) -> Texts:
        """Show the unfinished lines of a worker that has ended."""
        for stream in self._screens:
            line = self._lines.pop((number, stream), None)
            if line is None:
                continue
            if not self._is_shared:
                line.screen.pieces.append(line.held)
                if line.current or line.continues:  # the next worker begins a new line
                    line.screen.cursor = line
            elif line in self._waiting or line.screen.cursor is line:
                line.screen.finish(line, self._prefix(number), _clean(line.current))
            self._waiting.pop(line, None)
        self._prefixes.pop(number, None)
        self._prefixed.discard(number)
        return self._collect()

    def flush(self, now: float) -> Texts:
        """Show all held text; with several workers, move the cursor to the start of a line."""
        for line in list(self._waiting):
            self._show(line, now)
        for screen in self._screens.values():
            screen.print(screen.deduplicator.flush())
            if self._is_shared:
                screen.leave_line()
        return self._collect()

    def next_moment(self) -> float | None:
        """Return the time of the next `tick`, or None."""
        moments = [self._due(line) for line in self._waiting]
        for screen in self._screens.values():
            expiry = screen.deduplicator.next_moment
            if expiry is not None:
                moments.append(expiry)
        return min(moments, default=None)

    # -- one worker

    def _pass_on(self, line: _Line, text: str, now: float) -> None:
        held = line.held + text
        whole = held.rfind("\n") + 1
        if whole:
            line.screen.pieces.append(held[:whole])
            self._before.append((now, line.screen.stream, held[:whole]))
            held = held[whole:]
        line.held = held
        _, newline, rest = text.rpartition("\n")
        if newline:
            line.is_update = line.continues = False
        self._keep(line, rest if newline else line.current + rest)
        if "\r" in held or len(held) > LONGEST_LINE:
            self._show(line, now)
        elif held:
            self._wait(line, now)
        else:
            self._waiting.pop(line, None)

    def _share(self) -> None:
        """Take over the first worker's lines when a second worker writes."""
        self._is_shared = True
        self._waiting.clear()
        for line in self._lines.values():
            if line.number != self._only:
                continue
            screen = line.screen
            screen.pieces.append(line.held)
            line.held = ""
            if line.current or line.continues:
                screen.cursor, screen.shown, screen.returned = (
                    line,
                    line.current.rstrip("\r"),
                    line.current.endswith("\r"),
                )
        assert self._only is not None
        for moment, stream, text in self._before:
            deduplicator = self._screens[stream].deduplicator
            for content in text.split("\n"):
                if _is_countable(content):
                    deduplicator.note(_clean(content), self._only, moment)
        self._before.clear()

    # -- several workers

    def _take(self, line: _Line, text: str, now: float) -> None:
        screen, number, prefix = line.screen, line.number, self._prefix(line.number)
        screen.print(screen.deduplicator.expire(now))
        text = line.current + text
        if "\x1b" in text:
            text = _UNDONE_NEWLINES.sub("\r", text)
        *whole, rest = text.split("\n")
        if whole:
            self._waiting.pop(line, None)
            is_repeat, pieces = screen.deduplicator.is_repeat, screen.pieces
            for content in whole:
                content = _clean(content)
                if screen.cursor is line:
                    screen.finish(line, prefix, content)
                elif line.continues and not content:
                    pass  # all of it has been shown
                elif not _is_countable(content) or not is_repeat(content, number, prefix, now):
                    screen.leave_line()
                    pieces.append(f"{prefix}{content}\n")
                line.continues = line.is_update = False
        self._keep(line, rest)
        if not rest:
            return
        if len(line.current) > LONGEST_LINE:
            self._show(line, now)
            return
        self._wait(line, now)
        if line.is_update and self._due(line) <= now:
            self._show(line, now)

    def _show(self, line: _Line, now: float) -> None:
        """Show the current state of an unfinished line."""
        self._waiting.pop(line, None)
        screen = line.screen
        if self._is_shared:
            content = _clean(line.current)
            if screen.cursor is line or content.strip():
                screen.draw(line, self._prefix(line.number), content)
                line.drawn_at = now
                if line.current.endswith("\r"):
                    screen.pieces.append("\r")
                    screen.returned = True
        else:
            screen.pieces.append(line.held)
            line.held = ""
        if len(line.current) > LONGEST_LINE:
            line.current, line.continues, screen.shown = "", True, ""

    def _keep(self, line: _Line, rest: str) -> None:
        """Keep `rest` as the unfinished line."""
        if "\r" in rest:
            line.is_update = True
            rest = _visible(rest) + ("\r" if rest.endswith("\r") else "")
        line.current = rest

    def _wait(self, line: _Line, now: float) -> None:
        if line not in self._waiting:
            self._waiting[line] = None
            line.arrived = now

    def _due(self, line: _Line) -> float:
        """Return the time at which the unfinished line may be shown."""
        moment = line.arrived if line.is_update else line.arrived + PARTIAL_S
        if self._is_shared and line.screen.cursor is not line:
            return max(moment, line.drawn_at + REDRAW_S * len(self._waiting))
        return moment

    def _prefix(self, number: int) -> str:
        return self._prefixes.get(number) or f"(worker {number}) "

    def _collect(self) -> Texts:
        texts: Texts = []
        for stream, screen in self._screens.items():
            if screen.pieces:
                text = "".join(screen.pieces)
                screen.pieces.clear()
                if text:
                    texts.append((stream, text))
        return texts


def _visible(line: str) -> str:
    """Return the text that a terminal shows of a line with carriage returns."""
    return line.rstrip("\r").rpartition("\r")[2]


def _clean(line: str) -> str:
    """Return a line for display among the lines of other workers."""
    if "\r" in line:
        line = _visible(line)
    if "\x1b" in line:
        line = _MOVEMENTS.sub("", line)
    return line


def _is_countable(content: str) -> bool:
    return bool(content) and not content.isspace()
