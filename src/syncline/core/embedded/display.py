"""What the driver's terminal shows of what workers print. Pure: events in, texts out, and the
moment comes with every call.

While a single worker has written, its text passes unchanged. From the second on each line gets its
writer's label in front, and the lines of many workers that say the same are folded. A line that is
not finished, be it a prompt, a row of dots or a progress bar, is drawn where the cursor stands and
redrawn as it changes; whoever comes next begins a new line, and the writer that was cut off may
draw again after a while only. So many bars at once give some lines a second, and each shows one
state of one bar.

Not covered: programs that move the cursor up and down, whose movements are dropped once several
workers write.
"""

from __future__ import annotations

import re
from collections import deque

from syncline.core.embedded.folding import Folding
from syncline.core.embedded.logs import Stream

PARTIAL_S = 0.1
"""How long the beginning of a line waits for its end before it is shown."""
REDRAW_S = 0.5
"""How long a writer that was cut off waits before it draws its unfinished line again, times the
number of those that wait.
"""
LONGEST_LINE = 65_536
"""Characters of an unfinished line that are kept; a longer one is shown in pieces."""
_REMEMBERED_TEXTS = 16

_UNDONE_NEWLINES = re.compile(
    "(?:\x1b\\[A)+\n+"
)  # nested bars go one line down for each time that they went up
_MOVEMENTS = re.compile("\x1b\\[[0-9;]*[ABEFGHJSTdfsu]")

Texts = list[tuple[Stream, str]]
"""What to write, in order."""


class _Line:
    """The unfinished line of one stream of one worker."""

    __slots__ = (
        "arrived",
        "continues",
        "current",
        "drawn_at",
        "held",
        "is_update",
        "number",
        "screen",
    )

    def __init__(self, number: int, screen: _Screen) -> None:
        self.number = number
        self.screen = screen
        self.current = ""  # what a terminal would show of it, and a carriage return if the cursor is back at the start
        self.held = ""  # while only one worker writes: what of it has not been passed on
        self.is_update = False  # it has been drawn again with a carriage return
        self.continues = False  # its beginning was too long and has been shown
        self.arrived = 0.0  # when the first was added that is not shown
        self.drawn_at = float("-inf")


class _Screen:
    """One stream of the driver."""

    __slots__ = ("cursor", "folding", "pieces", "returned", "shown", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.pieces: list[str] = []
        self.folding = Folding()
        self.cursor: _Line | None = (
            None  # whose unfinished line the cursor is on, None at the start of a line
        )
        self.shown = ""  # what of that line is left of the cursor
        self.returned = False  # the cursor is back at the start of that line

    def draw(self, line: _Line, prefix: str, content: str) -> None:
        """Bring the line to `content`, with as little as possible."""
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
        """Bring the line to `content` and end it."""
        self.draw(line, prefix, content)
        self.pieces.append("\n")
        self.cursor = None

    def leave_line(self) -> None:
        """Put the cursor at the start of a line."""
        if self.cursor is not None:
            self.pieces.append("\n")
            self.cursor = None

    def print(self, texts: list[str]) -> None:
        """Whole lines that belong to no writer."""
        if texts:
            self.leave_line()
            self.pieces += texts


class Display:
    """The two streams of the driver, shared by many workers. Not thread-safe, but `name` may be
    called at any time.
    """

    def __init__(self) -> None:
        self._screens: dict[Stream, _Screen] = {"out": _Screen("out"), "err": _Screen("err")}
        self._labels: dict[int, str] = {}
        self._lines: dict[tuple[int, Stream], _Line] = {}
        self._waiting: dict[
            _Line, None
        ] = {}  # with something that is not shown, the longest waiting first
        self._only: int | None = None  # the single worker that has written, if so
        self._is_shared = False
        self._before: deque[tuple[float, Stream, str]] = deque(
            maxlen=_REMEMBERED_TEXTS
        )  # whole lines of the only writer

    @property
    def folded_lines(self) -> int:
        """Lines that were counted instead of shown, so far."""
        return sum(screen.folding.total for screen in self._screens.values())

    def name(self, number: int, label: str) -> None:
        """What to put in front of the worker's lines."""
        self._labels[number] = label

    def write(self, number: int, stream: Stream, text: str, now: float) -> Texts:
        """A worker wrote `text`."""
        line = self._lines.get((number, stream))
        if line is None:
            line = self._lines[number, stream] = _Line(number, self._screens[stream])
            if self._only is None:
                self._only = number
            elif number != self._only and not self._is_shared:
                self._share()
        if self._is_shared:
            self._take(line, text, now)
        else:
            self._pass_on(line, text, now)
        return self._collect()

    def tick(self, now: float) -> Texts:
        """Time has passed."""
        for screen in self._screens.values():
            screen.print(screen.folding.expire(now))
        for line in list(self._waiting):
            if self._due(line) <= now:
                self._show(line, now)
        return self._collect()

    def end(self, number: int) -> Texts:
        """The worker is gone: what it did not finish is shown as it is."""
        for stream in self._screens:
            line = self._lines.pop((number, stream), None)
            if line is None:
                continue
            if not self._is_shared:
                line.screen.pieces.append(line.held)
                if line.current or line.continues:  # the next writer begins a new line
                    line.screen.cursor = line
            elif line in self._waiting or line.screen.cursor is line:
                line.screen.finish(line, self._prefix(number), _clean(line.current))
            self._waiting.pop(line, None)
        self._labels.pop(number, None)
        return self._collect()

    def flush(self, now: float) -> Texts:
        """Show everything that is held back; from the second worker on, the cursor comes to the
        start of a line.
        """
        for line in list(self._waiting):
            self._show(line, now)
        for screen in self._screens.values():
            screen.print(screen.folding.flush())
            if self._is_shared:
                screen.leave_line()
        return self._collect()

    def next_moment(self) -> float | None:
        """When `tick` has something to do, None for never."""
        moments = [self._due(line) for line in self._waiting]
        for screen in self._screens.values():
            expiry = screen.folding.next_moment
            if expiry is not None:
                moments.append(expiry)
        return min(moments, default=None)

    # -- one writer

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
        """A second worker writes: where the first one stands, and what it printed a moment ago."""
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
            folding = self._screens[stream].folding
            for content in text.split("\n"):
                if _is_foldable(content):
                    folding.note(_clean(content), self._only, moment)
        self._before.clear()

    # -- many writers

    def _take(self, line: _Line, text: str, now: float) -> None:
        screen, number, prefix = line.screen, line.number, self._prefix(line.number)
        screen.print(screen.folding.expire(now))
        text = line.current + text
        if "\x1b" in text:
            text = _UNDONE_NEWLINES.sub("\r", text)
        *whole, rest = text.split("\n")
        if whole:
            self._waiting.pop(line, None)
            is_repeat, pieces = screen.folding.is_repeat, screen.pieces
            for content in whole:
                content = _clean(content)
                if screen.cursor is line or (line.continues and not content):
                    self._end_started(line, prefix, content)
                elif not _is_foldable(content) or not is_repeat(content, number, prefix, now):
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

    def _end_started(self, line: _Line, prefix: str, content: str) -> None:
        if line.screen.cursor is line:
            line.screen.finish(line, prefix, content)

    def _show(self, line: _Line, now: float) -> None:
        """Show an unfinished line as it is now."""
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
        """`rest` is the line that is not finished."""
        if "\r" in rest:
            line.is_update = True
            rest = _visible(rest) + ("\r" if rest.endswith("\r") else "")
        line.current = rest

    def _wait(self, line: _Line, now: float) -> None:
        if line not in self._waiting:
            self._waiting[line] = None
            line.arrived = now

    def _due(self, line: _Line) -> float:
        """When the unfinished line may be shown."""
        moment = line.arrived if line.is_update else line.arrived + PARTIAL_S
        if self._is_shared and line.screen.cursor is not line:
            return max(moment, line.drawn_at + REDRAW_S * len(self._waiting))
        return moment

    def _prefix(self, number: int) -> str:
        label = self._labels.get(number)
        return f"({label}) " if label else f"(worker {number}) "

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
    """What a terminal shows of a line that was drawn over itself."""
    return line.rstrip("\r").rpartition("\r")[2]


def _clean(line: str) -> str:
    """What is shown of a line among the lines of others."""
    if "\r" in line:
        line = _visible(line)
    if "\x1b" in line:
        line = _MOVEMENTS.sub("", line)
    return line


def _is_foldable(content: str) -> bool:
    return bool(content) and not content.isspace()
