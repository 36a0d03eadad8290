"""`tqdm`: progress bars of tasks and actors, which the program shows together.

Bars are drawn as text on standard error, with carriage returns. The engine shows those of all
workers below the output of the program, and above its live region. On a cluster, whose logs have
whole lines only, a bar is a line every few seconds. Needs no other library.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from syncline.core import engine as engines

WIDTH = 20
"""Characters of a bar."""
LINE_INTERVAL_S = 5.0
"""Seconds between two lines where bars cannot be redrawn."""


class tqdm:
    """A progress bar with the methods of Ray's.

    Args:
        iterable: Items to iterate over; None to call `update`.
        desc: Text before the bar.
        total: Number of items; by default the length of `iterable`, if it has one.
        unit: Name of an item.
        position: Row of the bar among those of this process; by default the next free one.
        flush_interval_s: Least seconds between two redraws.
    """

    def __init__(
        self,
        iterable: Iterable[object] | None = None,
        desc: str | None = None,
        total: int | None = None,
        unit: str | None = None,
        *,
        position: int | None = None,
        flush_interval_s: float = 0.1,
        **_ignored: object,
    ) -> None:
        if total is None:
            total = len(iterable) if isinstance(iterable, Sized) else None
        self._iterable = iterable
        self._desc = desc or ""
        self._total = total
        self._unit = unit or "it"
        self._n = 0
        self._interval_s = flush_interval_s
        self._started = time.monotonic()
        self._drawn = float("-inf")
        self._row = _rows.take(self, position)
        self.refresh()

    @property
    def total(self) -> int | None:
        """Number of items; None if unknown."""
        return self._total

    @total.setter
    def total(self, total: int | None) -> None:
        self._total = total

    @property
    def n(self) -> int:
        """Items so far."""
        return self._n

    @n.setter
    def n(self, n: int) -> None:
        self._n = n

    def set_description(self, desc: str | None = None, refresh: bool = True) -> None:
        """Set the text before the bar."""
        self._desc = desc or ""
        if refresh:
            self.refresh()

    def update(self, n: int = 1) -> None:
        """Add items, and redraw if the last time is long enough ago."""
        self._n += n
        if time.monotonic() - self._drawn >= self._interval_s:
            self.refresh()

    def refresh(self) -> None:
        """Redraw now."""
        self._drawn = time.monotonic()
        _rows.draw(self, self._row, self.text())

    def close(self) -> None:
        """Draw the bar a last time and leave it there. May be called twice."""
        _rows.release(self, self._row, self.text())

    def text(self) -> str:
        """Return the bar as text, such as `load:  50%|█████     | 5/10 [1.2 s, 4.2 it/s]`."""
        elapsed = time.monotonic() - self._started
        rate = f"{self._n / elapsed:.3g} {self._unit}/s" if elapsed > 0 and self._n else "?"
        head = f"{self._desc}: " if self._desc else ""
        if not self._total:
            return f"{head}{self._n} {self._unit} [{elapsed:.1f} s, {rate}]"
        share = min(1.0, self._n / self._total)
        bar = "█" * int(share * WIDTH)
        return (
            f"{head}{share:4.0%}|{bar:{WIDTH}}| {self._n}/{self._total} [{elapsed:.1f} s, {rate}]"
        )

    def __iter__(self) -> Iterator[Any]:
        if self._iterable is None:
            raise ValueError("The bar has no `iterable`: pass one, or call `update`.")
        try:
            for item in self._iterable:
                yield item
                self.update()
        finally:
            self.close()

    def __enter__(self) -> tqdm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Rows:
    """The rows of the bars of this process. The cursor rests in the first row."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._bars: dict[int, tqdm] = {}
        self._lines_at: dict[int, float] = {}
        self._height = 0  # rows since there was no bar
        self.are_hidden = False

    def take(self, bar: tqdm, row: int | None) -> int:
        """Return the row for a new bar."""
        with self._lock:
            if row is None or row in self._bars:
                row = next(free for free in range(len(self._bars) + 1) if free not in self._bars)
            self._bars[row] = bar
            self._height = max(self._height, row + 1)
            return row

    def draw(self, bar: tqdm, row: int, text: str) -> None:
        """Draw a bar in its row, unless it is closed."""
        with self._lock:
            if self._bars.get(row) is not bar or self.are_hidden:
                return
            if _shows_rows():
                _write("\n" * row + f"\r{text}\x1b[K" + "\x1b[A" * row)
            elif time.monotonic() >= self._lines_at.get(row, 0.0):
                self._lines_at[row] = time.monotonic() + LINE_INTERVAL_S
                _write(f"{text}\n")

    def release(self, bar: tqdm, row: int, text: str) -> None:
        """Draw a bar a last time and free its row."""
        with self._lock:
            if self._bars.get(row) is not bar:
                return
            self._lines_at.pop(row, None)
            self.draw(bar, row, text)
            del self._bars[row]
            if not self._bars:
                if _shows_rows() and not self.are_hidden:
                    _write("\n" * self._height)
                self._height = 0

    def hide_bars(self) -> None:
        """Draw no bars of this process until `unhide_bars`."""
        self.are_hidden = True

    def unhide_bars(self) -> None:
        """Draw the bars of this process again."""
        self.are_hidden = False
        with self._lock:
            for row, bar in sorted(self._bars.items()):
                self.draw(bar, row, bar.text())


_rows = _Rows()


def instance() -> _Rows:
    """Return the object with `hide_bars` and `unhide_bars`."""
    return _rows


def safe_print(*args: Any, **kwargs: Any) -> None:
    """Print as `print` does: the engine shows lines above the bars."""
    print(*args, **kwargs)


def _shows_rows() -> bool:
    engine = engines.current
    return engine is None or engine.address == "local"


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):  # the program is gone, or the stream is closed
        pass
