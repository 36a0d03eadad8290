"""Display of worker output on the driver's streams: output in, texts out, the clock injected.

While a single worker has written, its text passes unchanged. From the second worker on each line
has its worker's label as prefix, and equal lines of many workers are shown once with a count.

Unfinished lines (a prompt, a row of dots, a progress bar and the bars nested in it):

- On a terminal they form a block of rows that is redrawn in place below the finished lines. The
  cursor rests in the row above the block, which is left to output of the driver itself.
  Standard output and standard error share the block if both are terminals. While there is a block,
  finished lines are held until the next redraw.
- On other streams, such as a file or a notebook, an unfinished line is shown after a delay and
  continued in place. Of a progress bar the end is shown, and rarely a state before.

Not covered: cursor movements other than those of nested tqdm bars; they are dropped. Two streams on
two different terminals.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Literal

from syncline.core.embedded.line_deduplicator import LineDeduplicator
from syncline.core.embedded.terminal_rows import ERASE, Size, block_text, by_numbers, fit
from syncline.core.live_region import UnfinishedRows

Stream = Literal["out", "err"]
"""A worker's standard output or standard error."""

PARTIAL_S = 0.1
"""Seconds that an unfinished line waits for its end before it is shown."""
SETTLE_S = 0.1
"""Seconds after the end of a progress bar in which its worker may redraw it."""
NESTED_S = 1.0
"""Seconds after its first bar in which a worker's first nested bar is expected."""
REDRAW_S = 0.1
"""Shortest time between two redraws of the block on a terminal, in seconds."""
REFRESH_S = 1.0
"""Longest time between two redraws, because output of the driver may overwrite the block."""
INTERIM_S = 60.0
"""Seconds between two states of a progress bar that is not on a terminal, times their number."""
MOST_ROWS = 8
"""Largest number of unfinished lines in the block on a terminal."""
LONGEST_LINE = 65_536
"""Longest unfinished line, in characters; a longer one is shown in pieces."""
_REMEMBERED_TEXTS = 16
_STREAMS: tuple[Stream, Stream] = ("out", "err")
_MOVEMENTS = re.compile("\x1b\\[[0-9;]*[ABEFGHJKSTdfsu]")
Texts = list[tuple[Stream, str]]
"""Texts to write, in order."""


@dataclass(slots=True, eq=False)
class _Writer:
    """One stream of one worker."""

    number: int
    stream: Stream
    rows: UnfinishedRows = field(default_factory=UnfinishedRows)
    held: str = ""
    """Text that was not passed on, while only one worker writes."""
    continues: bool = False
    """True if the beginning of the unfinished line was too long and has been shown."""
    first_bar_at: float | None = None
    """Time of the first progress bar."""
    interim_at: float | None = None
    """Earliest time to show the unfinished line again, where it cannot be redrawn."""


@dataclass(slots=True, eq=False)
class _Screen:
    """One stream of the driver. On a terminal `cursor` is None, because there is the block."""

    stream: Stream
    pieces: Texts
    """Texts to write to both streams, in order."""
    deduplicator: LineDeduplicator = field(default_factory=LineDeduplicator)
    cursor: _Writer | None = None
    """The writer of the unfinished line with the cursor; None at the start of a line."""
    shown: str = ""
    """Text of that line."""

    def put(self, text: str) -> None:
        """Write text at the cursor."""
        self.pieces.append((self.stream, text))

    def print(self, line: str) -> None:
        """Write a whole line."""
        self.leave_line()
        self.put(line)

    def draw(self, writer: _Writer, prefix: str, content: str) -> None:
        """Show an unfinished line, or continue it."""
        if self.cursor is writer and content.startswith(self.shown):
            self.put(content[len(self.shown) :])
        else:
            self.print(prefix + content)
        self.cursor, self.shown = writer, content

    def leave_line(self) -> None:
        """Move the cursor to the start of a line."""
        if self.cursor is not None:
            self.put("\n")
            self.cursor = None


class Display:
    """The driver's two streams, shared by many workers.

    Not thread-safe, except that `name` may be called at any time.
    """

    def __init__(self, size_of: Callable[[Stream], Size | None] = lambda _: None) -> None:
        """`size_of` returns the size of the terminal of a stream; None if it is not a terminal."""
        self._size_of = size_of
        self._sizes: dict[Stream, Size | None] = dict.fromkeys(_STREAMS)
        self._pieces: Texts = []
        self._screens = {stream: _Screen(stream, self._pieces) for stream in _STREAMS}
        self._prefixes: dict[int, str] = {}
        self._prefixed: set[int] = set()  # workers whose lines always have a prefix
        self._writers: dict[tuple[int, Stream], _Writer] = {}
        self._waiting: dict[_Writer, float] = {}  # times at which unfinished lines are shown
        self._now = 0.0
        self._only: int | None = None  # the first worker that wrote
        self._is_shared = False
        # whole lines of the only worker, to detect repeats by the second one
        self._before: deque[tuple[float, Stream, list[str]]] = deque(maxlen=_REMEMBERED_TEXTS)
        self._block: set[_Writer] = set()  # writers with rows in the block
        self._is_drawn = False  # the terminal shows a block
        self._is_changed = False  # and it is out of date
        self._redraw_at = float("-inf")

    @property
    def repeated_lines(self) -> int:
        """Number of lines that were counted instead of shown."""
        return sum(screen.deduplicator.total for screen in self._screens.values())

    def name(self, number: int, label: str, *, always: bool = False) -> None:
        """Set the prefix of the worker's lines; with `always`, even if it is the only writer."""
        self._prefixes[number] = f"[{label}] " if always else f"({label}) "
        if always:
            self._prefixed.add(number)

    def write(self, number: int, stream: Stream, text: str, now: float) -> Texts:
        """Add output of a worker."""
        self._now = now
        writer = self._writers.get((number, stream))
        if writer is None:
            writer = self._writers[number, stream] = _Writer(number, stream)
            if self._only is None:
                self._only = number
            if not self._is_shared and (number != self._only or number in self._prefixed):
                self._share()
        if self._is_shared:
            self._take(writer, text)
        else:
            self._pass_on(writer, text)
        return self._collect()

    def tick(self, now: float) -> Texts:
        """Show the lines whose delay has passed."""
        self._now = now
        if self._is_shared:
            self._update_sizes()
        for screen in self._screens.values():
            for line in screen.deduplicator.expire(now):
                screen.print(line)
        for writer in [writer for writer, moment in self._waiting.items() if moment <= now]:
            self._show(writer)
        self._is_changed |= now >= self._redraw_at + REFRESH_S
        return self._collect()

    def end(self, number: int) -> Texts:
        """Show the unfinished lines of a worker that has ended."""
        for stream in _STREAMS:
            writer = self._writers.get((number, stream))
            if writer is None:
                continue
            if self._is_shared:
                self._finish(writer)
            else:
                screen = self._screens[stream]
                screen.put(writer.held)
                if writer.rows.current or writer.continues:  # the next worker begins a new line
                    screen.cursor = writer
                self._waiting.pop(writer, None)
            del self._writers[number, stream]
        self._prefixes.pop(number, None)
        self._prefixed.discard(number)
        return self._collect()

    def flush(self, now: float) -> Texts:
        """Show all held text; with several workers, move the cursor to the start of a line."""
        self._now = now
        for writer in self._writers.values():
            if self._is_shared:
                self._finish(writer)
            elif writer in self._waiting:
                self._show(writer)
        for screen in self._screens.values():
            for line in screen.deduplicator.flush():
                screen.print(line)
        self._redraw_at = float("-inf")
        return self._collect()

    def next_moment(self) -> float | None:
        """Return the time of the next `tick`, or None."""
        moments = list(self._waiting.values())
        for screen in self._screens.values():
            expiry = screen.deduplicator.next_moment
            if expiry is not None:
                moments.append(expiry)
        if self._is_drawn or self._block:
            is_due = self._is_changed or self._pieces
            moments.append(self._redraw_at + (0 if is_due else REFRESH_S))
        return min(moments, default=None)

    # -- one worker

    def _pass_on(self, writer: _Writer, text: str) -> None:
        lines = writer.rows.write(text)
        held = writer.held + text
        whole = held.rfind("\n") + 1
        if whole:
            self._screens[writer.stream].put(held[:whole])
            held = held[whole:]
            writer.continues = False
            self._before.append((self._now, writer.stream, lines))
        writer.held = held
        if len(writer.rows.current) > LONGEST_LINE:
            writer.rows.finish()
            writer.continues = True
            self._show(writer)
        elif "\r" in held:
            self._show(writer)
        elif held:
            self._waiting.setdefault(writer, self._now + PARTIAL_S)
        else:
            self._waiting.pop(writer, None)

    def _share(self) -> None:
        """Take over the first worker's lines when a second worker writes."""
        self._is_shared = True
        self._waiting.clear()
        self._update_sizes()
        for writer in self._writers.values():
            screen = self._screens[writer.stream]
            if writer.number == self._only:
                writer.rows.settle()  # the rows above the cursor have been shown
                if self._sizes[writer.stream] is None:
                    screen.put(writer.held)
                    if writer.rows.has_bar:
                        screen.put("\n")
                    elif writer.rows.current or writer.continues:
                        screen.cursor, screen.shown = writer, writer.rows.current
                elif writer.rows.rows:
                    screen.put(ERASE)
                writer.held = ""
                self._note(writer)
        for moment, stream, lines in self._before:
            deduplicator = self._screens[stream].deduplicator
            for content in lines:
                if _is_countable(content):
                    assert self._only is not None
                    deduplicator.note(_clean(content), self._only, moment)
        self._before.clear()

    # -- several workers

    def _take(self, writer: _Writer, text: str) -> None:
        screen = self._screens[writer.stream]
        for line in screen.deduplicator.expire(self._now):
            screen.print(line)
        lines = writer.rows.write(text)
        if lines:
            other = self._writers.get((writer.number, "err" if writer.stream == "out" else "out"))
            if other is not None and other.rows.is_settled:  # its bar ended before these lines
                self._show(other)
            if screen.cursor is writer or writer.continues:
                self._print(writer, lines.pop(0))
            if lines:
                self._print_new(writer, screen, lines)
            writer.interim_at = None
        if self._block or not writer.rows.is_empty:
            self._update_sizes()
            self._note(writer)
        elif writer in self._waiting:
            self._forget(writer)

    def _print_new(self, writer: _Writer, screen: _Screen, lines: list[str]) -> None:
        """Show the finished lines that other workers have not printed recently."""
        number, prefix, now = writer.number, self._prefix(writer.number), self._now
        is_repeat = screen.deduplicator.is_repeat
        shown = []
        for content in lines:
            if "\x1b" in content:
                content = _clean(content)
            if not _is_countable(content) or not is_repeat(content, number, prefix, now):
                shown.append(f"{prefix}{content}\n")
        if shown:
            screen.print("".join(shown))

    def _print(self, writer: _Writer, content: str) -> None:
        """Show a finished line."""
        screen, prefix, content = (
            self._screens[writer.stream],
            self._prefix(writer.number),
            _clean(content),
        )
        if screen.cursor is writer:
            screen.draw(writer, prefix, content)
            screen.leave_line()
        elif content or not writer.continues:
            screen.print(f"{prefix}{content}\n")
        writer.continues = False

    def _note(self, writer: _Writer) -> None:
        """Decide when the unfinished lines of a writer are shown."""
        rows, waiting, now = writer.rows, self._waiting, self._now
        if writer.first_bar_at is None and rows.has_bar:
            writer.first_bar_at = now
        self._is_changed |= writer in self._block
        if rows.is_empty:
            self._forget(writer)
        elif len(rows.current) > LONGEST_LINE:
            self._show_piece(writer)
        elif rows.has_rows_above:
            if rows.is_settled and self._has_single_bars(writer):
                self._show(writer)
            else:
                if self._sizes[writer.stream] is not None:
                    self._add_to_block(writer)
                waiting[writer] = min(waiting.get(writer, now + SETTLE_S), now + SETTLE_S)
        elif self._sizes[writer.stream] is not None:
            if rows.has_bar or writer in self._block:
                waiting.pop(writer, None)
                self._add_to_block(writer)
            else:
                waiting.setdefault(writer, now + PARTIAL_S)
        elif rows.has_bar and writer.interim_at is None:
            waiting[writer] = writer.interim_at = self._next_interim()
        elif writer.interim_at is None or self._screens[writer.stream].cursor is writer:
            waiting.setdefault(writer, now + PARTIAL_S)
        else:
            waiting[writer] = writer.interim_at

    def _has_single_bars(self, writer: _Writer) -> bool:
        """Return True if the ended bar above the cursor will not be redrawn."""
        since = writer.first_bar_at
        return not writer.rows.has_moved_up and since is not None and self._now > since + NESTED_S

    def _show(self, writer: _Writer) -> None:
        """Show the unfinished lines of a writer."""
        self._waiting.pop(writer, None)
        screen, rows = self._screens[writer.stream], writer.rows
        prefix = self._prefix(writer.number)
        if not self._is_shared:
            screen.put(writer.held)
            writer.held = ""
        elif rows.has_rows_above:
            for content in rows.settle():
                self._print(writer, content)
            self._note(writer)
        elif self._sizes[writer.stream] is not None:
            self._add_to_block(writer)
        else:
            if rows.has_bar:
                screen.print(f"{prefix}{_clean(rows.rows[0])}\n")
            else:
                screen.draw(writer, prefix, _clean(rows.current))
            writer.interim_at = self._next_interim()

    def _show_piece(self, writer: _Writer) -> None:
        """Show the beginning of a line that is too long."""
        screen, prefix = self._screens[writer.stream], self._prefix(writer.number)
        for content in map(_clean, writer.rows.finish()):
            if self._sizes[writer.stream] is None:
                screen.draw(writer, prefix, content)
                screen.shown = ""
            else:
                screen.print(f"{prefix}{content}\n")
        writer.continues = True
        self._forget(writer)

    def _finish(self, writer: _Writer) -> None:
        """Show the unfinished lines as finished ones, unless they have been shown."""
        screen, contents = self._screens[writer.stream], writer.rows.finish()
        if writer in self._waiting or writer in self._block or screen.cursor is writer:
            for content in contents:
                self._print(writer, content)
        if screen.cursor is writer:
            screen.leave_line()
        self._forget(writer)

    def _forget(self, writer: _Writer) -> None:
        """Remove a writer without unfinished lines."""
        self._waiting.pop(writer, None)
        if writer in self._block:
            self._block.remove(writer)
            self._is_changed = True

    def _next_interim(self) -> float:
        return self._now + INTERIM_S * (len(self._waiting) + 1)

    def _prefix(self, number: int) -> str:
        return self._prefixes.get(number) or f"(worker {number}) "

    # -- terminals

    def _add_to_block(self, writer: _Writer) -> None:
        self._block.add(writer)
        self._is_changed = True

    def _update_sizes(self) -> None:
        """Read the sizes of the terminals; a stream may be replaced at any time."""
        for stream in _STREAMS:
            before, size = self._sizes[stream], self._size_of(stream)
            if size == before:
                continue
            self._sizes[stream] = size
            self._is_changed = True
            if size is None or before is None:
                self._screens[stream].leave_line()
                self._is_drawn = self._is_drawn and any(self._sizes.values())
                for writer in self._writers.values():
                    if writer.stream == stream:
                        self._forget(writer)
                        self._note(writer)

    def _collect(self) -> Texts:
        """Return the texts to write now, and the block if it is due."""
        pieces = self._pieces
        if not (self._is_drawn or self._block):
            if not pieces:
                return []
            texts = pieces.copy()
        elif not (pieces or self._is_changed) or (self._block and self._now < self._redraw_at):
            return []
        else:
            texts = self._with_block(pieces)
        pieces.clear()
        if len(texts) > 1:
            texts = [
                (stream, "".join(text for _, text in group))
                for stream, group in groupby(texts, itemgetter(0))
            ]
        return [piece for piece in texts if piece[1]]

    def _with_block(self, pieces: Texts) -> Texts:
        """Return the pieces and a new block instead of the one on the terminal."""
        first = next((i for i, (stream, _) in enumerate(pieces) if self._sizes[stream]), None)
        if first is None and not self._is_changed:
            return list(pieces)
        texts = list(pieces)
        if first is not None and self._is_drawn:
            texts.insert(first, (pieces[first][0], ERASE))
            self._is_drawn = False
        stream: Stream = "err" if self._sizes["err"] else "out"
        size = self._sizes[stream]
        rows = self._rows(size) if size is not None else []
        if rows or self._is_drawn:
            texts.append((stream, block_text(rows)))
        self._is_drawn, self._is_changed = bool(rows), False
        self._redraw_at = self._now + REDRAW_S
        return texts

    def _rows(self, size: Size) -> list[str]:
        writers = [(self._prefix(writer.number), writer) for writer in self._block]
        writers.sort(key=lambda item: (by_numbers(item[0]), item[1].number, item[1].stream))
        rows = [prefix + _clean(row) for prefix, writer in writers for row in writer.rows.rows]
        room = max(1, min(MOST_ROWS, size.lines // 2))
        if len(rows) > room:
            rows[room:] = [f"... and {len(rows) - room} more"]
        return [fit(row, size.columns - 1) for row in rows]


def _clean(line: str) -> str:
    """Return a line for display among the lines of other workers."""
    return _MOVEMENTS.sub("", line) if "\x1b" in line else line


def _is_countable(content: str) -> bool:
    return bool(content) and not content.isspace()
