"""`LiveRegion`: lines at the bottom of a terminal that are redrawn in place, below the program's
own output. `CellOutput`: HTML in a notebook cell that is replaced in place.

The displays of train, tune and data share this module:

- `redirected_output` prints output of the program above the region: standard streams and handlers
  of `logging`. `UnfinishedRows` holds back rows that may change, such as progress bars.
- `LiveRegion` draws at an interval, shows unfinished rows, and releases the terminal at exit.
- `repeat` is the redraw thread, and `print_line` the output of displays that do not draw.

Not covered: output written to the file descriptors; terminals that cannot move the cursor. rich is
imported when a region starts, because it takes too long for `import syncline`.
"""

from __future__ import annotations

import atexit
import contextvars
import io
import logging
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol, TextIO, cast

from syncline.optional import load

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.live import Live
    from rich.segment import Segment

REDRAW_INTERVAL_S = 0.5
MAX_UNFINISHED_ROWS = 4
"""Maximum number of rows that are held back per stream."""

StreamName = Literal["stdout", "stderr"]
_CURSOR_MOVEMENTS = re.compile(r"(\n|\r|\x1b[78D]|\x1b\[\d{0,4}A|\x1b\[G|\x1b\[[02]?K|\x1b\[0?J)")
_CUT_SEQUENCE = re.compile(r"\x1b(\[[\d;]*)?$")


def print_line(text: str) -> None:
    """Print a line to standard error, below a region if there is one."""
    print(text, file=sys.stderr, flush=True)


def repeat(action: Callable[[], object], interval_s: float, stop: threading.Event) -> None:
    """Call `action` in a daemon thread until `stop` is set or the terminal is gone."""

    def loop() -> None:
        while not stop.wait(interval_s):
            try:
                action()
            except (OSError, ValueError):  # closed terminal; the program's next print() raises too
                return

    # The kernel of a notebook finds the cell of an output in the context.
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(loop,), name="syncline-display", daemon=True).start()


# -- the region


class LiveRegion:
    """The region of one display. Thread-safe.

    Args:
        console: The terminal. Pass the real stream, not `sys.stderr` at the time of drawing.
        interval_s: Seconds between two redraws; None to redraw only in `refresh`.
        redirect: Streams whose output goes above the region, if they are terminals.
        transient: Remove the region when it is closed, instead of leaving the last frame.
    """

    def __init__(
        self,
        console: Console,
        *,
        interval_s: float | None = REDRAW_INTERVAL_S,
        redirect: Sequence[StreamName] = ("stdout", "stderr"),
        transient: bool = False,
    ) -> None:
        self._console = console
        self._interval_s = interval_s
        self._redirect = redirect
        self.transient = transient
        self._live: Live | None = None
        self._streams: Sequence[RedirectedStream] = ()
        self._exit = ExitStack()
        self._closed = threading.Event()
        self._lock = threading.RLock()  # `close` may also be called by `atexit` or a signal handler

    @property
    def is_started(self) -> bool:
        """True between `start` and `close`."""
        return self._live is not None

    def claim(self) -> bool:
        """Return True if the terminal supports a region and nothing else is drawn there.

        The terminal is then claimed until this region is closed or garbage collected.
        """
        from rich.file_proxy import FileProxy

        if not self._console.is_terminal or self._console.is_dumb_terminal:
            return False
        if any(isinstance(stream, FileProxy) for stream in (sys.stdout, sys.stderr)):
            return False
        with _claim_lock:
            if any(not region._closed.is_set() for region in _claims):
                return False
            _claims.add(self)
            return True

    def start(self, render: Callable[[], RenderableType]) -> None:
        """Start to draw what `render` returns."""
        from rich.live import Live

        live = Live(
            get_renderable=lambda: self._frame(render),
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        with _claim_lock:
            _claims.add(self)
        if _tqdm_is_active():
            self._console.line()
        self._console.file.write("\x1b[J")  # progress bars of workers, which are below the cursor
        atexit.register(self.close)  # a program may exit while another thread draws
        self._exit.callback(atexit.unregister, self.close)
        self._streams = self._exit.enter_context(redirected_output(self._console, self._redirect))
        self._exit.enter_context(live)
        self._live = live
        live.refresh()
        if self._interval_s is not None:
            repeat(self.refresh, self._interval_s, self._closed)

    def refresh(self) -> None:
        """Redraw now; ignored if the region is not started."""
        live = self._live
        for stream in self._streams:
            stream.flush_settled()
        if live is not None and not self._closed.is_set():
            live.refresh()

    def print(self, line: str) -> None:
        """Print a line above the region, or at its former position after `close`."""
        from rich.text import Text

        self._console.print(Text(line), soft_wrap=True)

    def close(self) -> bool:
        """Stop to draw and restore the streams; return True if the region was started."""
        with self._lock:
            self._closed.set()
            live, self._live = self._live, None
            if live is None:
                return False
            self._streams = ()  # the streams print their unfinished rows themselves
            live.transient = self.transient
            self._exit.close()
            return True

    def _frame(self, render: Callable[[], RenderableType]) -> _Frame:
        console = self._console
        # Rendered once: rich draws the frame again after each line that is printed above it.
        segments = list(console.render(render(), console.options))
        return _Frame(segments, self._streams)


@contextmanager
def suspended() -> Iterator[None]:
    """Remove all regions from the terminal during the block, which then belongs to the caller."""
    with _claim_lock:
        lives = [region._live for region in _claims if region._live is not None]
    for live in lives:
        live.transient = True
        live.stop()
    try:
        yield
    finally:
        for live in lives:
            live.start(refresh=True)


_claim_lock = threading.Lock()
_claims: weakref.WeakSet[LiveRegion] = weakref.WeakSet()


class _Frame:
    """A rendered region below the unfinished rows of the streams, as many as fit."""

    def __init__(self, region: Sequence[Segment], streams: Sequence[RedirectedStream]) -> None:
        self._region = region
        self._streams = streams

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        height = sum(segment.text.count("\n") for segment in self._region)
        room = console.height - height - 1
        rows = [row for stream in self._streams for row in stream.unfinished]
        for row in rows[-room:] if room > 0 else ():
            text = Text.from_ansi(row)
            text.no_wrap, text.overflow = True, "ellipsis"
            yield text
        yield from self._region


def _tqdm_is_active() -> bool:
    """Return True if tqdm draws bars, which leave the cursor in their line."""
    return bool(getattr(getattr(sys.modules.get("tqdm.std"), "tqdm", None), "_instances", ()))


# -- output of the program


class RedirectedStream(io.TextIOBase):
    """Replaces a stream and prints its complete lines above a region.

    Args:
        stream: The replaced stream.
        console: Console of the region.
        lock: Shared by all streams of the region; reentrant, because a signal handler may print.
    """

    def __init__(self, stream: TextIO, console: Console, lock: threading.RLock) -> None:
        self.unfinished: tuple[str, ...] = ()
        """Rows that were not printed yet; any thread may read them without the lock."""
        self.others: Sequence[RedirectedStream] = ()
        """The other streams of the region."""
        self._stream = stream
        self._console = console
        self._rows = UnfinishedRows()
        self._was_written = False
        self._lock = lock

    def write(self, text: str) -> int:
        """Add text and print the lines that it completes."""
        with self._lock:
            self._was_written = True
            lines = self._rows.write(text)
            self.unfinished = self._rows.rows
            if lines:
                for other in self.others:
                    other._print(other._rows.settle())
                self._print(lines)
        return len(text)

    def flush_settled(self) -> None:
        """Print bars whose lines ended if nothing was written since the last call."""
        with self._lock:
            if not self._was_written:
                self._print(self._rows.settle())
            self._was_written = False

    def finish(self) -> None:
        """Print all unfinished rows."""
        with self._lock:
            self._print(self._rows.finish())

    def flush(self) -> None:
        """Do nothing, because only unfinished rows are held back."""

    def isatty(self) -> bool:
        """Return False so that programs do not move the cursor."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the file descriptor of the replaced stream."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the replaced stream."""
        return self._stream.encoding

    @property
    def buffer(self) -> BinaryIO:
        """Binary buffer of the replaced stream."""
        return self._stream.buffer

    def _print(self, lines: list[str]) -> None:
        self.unfinished = self._rows.rows
        if lines:
            from rich.text import Text

            text = Text("\n").join(map(Text.from_ansi, lines))
            self._console.print(text, soft_wrap=True, markup=False, highlight=False, emoji=False)


@contextmanager
def redirected_output(
    console: Console, names: Sequence[StreamName] = ("stdout", "stderr")
) -> Iterator[Sequence[RedirectedStream]]:
    """Print the program's output above the region of `console` until the end of the block.

    Replaces the named streams that are terminals, also in the program's logging handlers. Yields
    the replacements.
    """
    given: dict[str, TextIO | None] = {name: getattr(sys, name) for name in names}
    streams = {
        name: stream for name, stream in given.items() if stream is not None and stream.isatty()
    }
    lock = threading.RLock()
    replaced = {name: RedirectedStream(stream, console, lock) for name, stream in streams.items()}
    for replacement in replaced.values():
        replacement.others = [other for other in replaced.values() if other is not replacement]
    by_stream = {id(stream): replaced[name] for name, stream in streams.items()}
    handlers = [
        (handler, handler.stream)
        for handler in _stream_handlers()
        if id(handler.stream) in by_stream
    ]
    for name, replacement in replaced.items():
        setattr(sys, name, replacement)
    for handler, stream in handlers:
        handler.setStream(cast("TextIO", by_stream[id(stream)]))
    try:
        yield list(replaced.values())
    finally:
        for replacement in replaced.values():
            replacement.finish()
        for handler, stream in handlers:
            if isinstance(handler.stream, RedirectedStream):
                handler.setStream(stream)
        for name, stream in streams.items():
            # Keep a stream that the program put there meanwhile.
            if getattr(sys, name) is replaced[name]:
                setattr(sys, name, stream)


def _stream_handlers() -> list[logging.StreamHandler[TextIO]]:
    handlers = [*logging.getLogger().handlers, *logging.getLogger("syncline").handlers]
    return [handler for handler in handlers if isinstance(handler, logging.StreamHandler)]


@dataclass(slots=True)
class _Row:
    text: str = ""
    is_bar: bool = False
    """True if the row was overwritten."""
    at_start: bool = False
    """True if the cursor is at the start of the row, so that the next text overwrites it."""
    returned: bool = False
    """True if a carriage return moved the cursor there; the row is then a bar."""


class UnfinishedRows:
    """The last rows of a stream, which the program may still change, and the cursor's row. Pure.

    A plain row is finished when its line ends. A progress bar, a row overwritten with carriage
    returns, may be redrawn after its line ended and may have other bars below; it is finished when
    other text follows. Carriage returns, the upward movement of nested tqdm bars, and the control
    sequences of `embedded.log_display` are interpreted; other cursor movements stay in the text.
    """

    def __init__(self) -> None:
        self.has_moved_up = False
        """True if the cursor was ever moved up, as nested bars do."""
        self._rows = [_Row()]
        self._cursor = 0
        self._saved = 0  # a row of the cursor to return to
        self._cut = ""  # the beginning of an escape sequence at the end of the last text

    @property
    def rows(self) -> tuple[str, ...]:
        """Text of the rows, without blank rows."""
        return tuple(row.text for row in self._rows if row.text.strip())

    @property
    def current(self) -> str:
        """Text of the cursor's row."""
        return self._rows[self._cursor].text

    @property
    def is_empty(self) -> bool:
        """True if all rows are blank."""
        text = self._rows[0].text
        return not text.strip() and (len(self._rows) == 1 or not self.rows)

    @property
    def has_bar(self) -> bool:
        """True if one of the rows is a progress bar."""
        return any(row.is_bar and row.text.strip() for row in self._rows)

    @property
    def has_rows_above(self) -> bool:
        """True if there are rows above the cursor: ended bars, unless the cursor moves up again."""
        return self._cursor > 0

    @property
    def is_settled(self) -> bool:
        """True if all text is above the cursor."""
        return self._cursor > 0 and not any(row.text.strip() for row in self._rows[self._cursor :])

    def write(self, text: str) -> list[str]:
        """Add text; return the rows that it finishes."""
        only = self._rows[0]
        if (
            len(self._rows) == 1
            and not only.is_bar
            and not only.at_start
            and "\r" not in text
            and "\x1b" not in text
            and not self._cut
        ):
            *lines, only.text = (only.text + text).split("\n")
            return lines
        text = self._cut + text
        cut = _CUT_SEQUENCE.search(text)
        self._cut = cut.group() if cut is not None else ""
        text = text.removesuffix(self._cut)
        for index, piece in enumerate(_CURSOR_MOVEMENTS.split(text)):
            if index % 2:
                self._move(piece)
            elif piece:
                self._put(piece)
        finished = []
        while self._cursor > 0 and self._first_is_finished():
            finished += self._pop_first()
        return finished

    def settle(self) -> list[str]:
        """Finish and return the rows above the cursor."""
        finished = []
        while self._cursor > 0:
            finished += self._pop_first()
        return finished

    def finish(self) -> list[str]:
        """Finish and return all rows."""
        rows = list(self.rows)
        self._rows, self._cursor = [_Row()], 0
        return rows

    def _put(self, text: str) -> None:
        row = self._rows[self._cursor]
        if row.at_start:
            row.text, row.is_bar, row.at_start = text, row.returned, False
        else:
            row.text += text

    def _move(self, sequence: str) -> None:
        """Move the cursor or erase text."""
        row = self._rows[self._cursor]
        if sequence in ("\n", "\x1bD"):
            self._cursor += 1
            if self._cursor == len(self._rows):
                self._rows.append(_Row())
            elif sequence == "\n":
                below = self._rows[self._cursor]
                below.at_start, below.returned = True, False
        elif sequence in ("\r", "\x1b[G"):
            row.at_start, row.returned = True, sequence == "\r"
        elif sequence == "\x1b7":
            self._saved = self._cursor
        elif sequence == "\x1b8":
            self._cursor = min(self._saved, len(self._rows) - 1)
        elif sequence.endswith("A"):
            self._cursor = max(0, self._cursor - int(sequence[2:-1] or 1))
            self.has_moved_up = True
        elif sequence.endswith("K"):
            if row.at_start or "2" in sequence:
                row.text = ""
        else:  # erase to the end of the screen
            del self._rows[self._cursor + 1 :]
            if row.at_start:
                row.text = ""

    def _first_is_finished(self) -> bool:
        """Return True for a plain row, and for a bar above plain text or too many rows."""
        others = self._rows[1:]
        return (
            not self._rows[0].is_bar
            or len(others) > MAX_UNFINISHED_ROWS
            or any(row.text.strip() and not row.is_bar for row in others)
        )

    def _pop_first(self) -> list[str]:
        self._cursor -= 1
        row = self._rows.pop(0)
        return [] if row.is_bar and not row.text.strip() else [row.text]


# -- notebooks


class _DisplayHandle(Protocol):
    def update(self, shown: object) -> None: ...


class CellOutput:
    """HTML in the output of the current notebook cell.

    Args:
        clear: Remove earlier output of the cell.
    """

    def __init__(self, *, clear: bool = False) -> None:
        self._clear = clear
        self._handle: _DisplayHandle | None = None

    @property
    def is_shown(self) -> bool:
        """True after the first `show`."""
        return self._handle is not None

    def show(self, html: str) -> None:
        """Show HTML in place of the previous one."""
        display = load("IPython.display", purpose="a display in a notebook", install="ipython")
        if self._handle is not None:
            self._handle.update(display.HTML(html))
            return
        if self._clear:
            display.clear_output(wait=True)
        self._handle = display.display(display.HTML(html), display_id=True)
