"""`Unfinished`: what a terminal would still change of a text that is written to it. Pure.

Whole lines are finished when they end. A bar, which is drawn over itself with carriage returns, may
have others below it and be drawn again although its line has ended: it is finished when other text
follows. Covered: carriage returns, and the movement upwards that nested bars of tqdm make. Other
movements of the cursor are left in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_ROWS = 4
"""More bars than that are not held back."""

_MOVEMENTS = re.compile(r"(\n|\r|\x1b\[\d*A)")


@dataclass(slots=True)
class _Row:
    text: str = ""
    is_bar: bool = False
    """It has been drawn over itself."""
    at_start: bool = False
    """The cursor is at its start, so that the next text takes its place."""
    returned: bool = False
    """The cursor has come there by a carriage return, so that this is a bar."""


class Unfinished:
    """The last rows of a stream, and where the cursor is among them."""

    def __init__(self) -> None:
        self._rows = [_Row()]
        self._cursor = 0

    @property
    def rows(self) -> tuple[str, ...]:
        """What they show; rows that are blank are left out."""
        return tuple(row.text for row in self._rows if row.text.strip())

    def take(self, text: str) -> list[str]:
        """Take text; returns the lines that it has finished."""
        only = self._rows[0]
        if (
            len(self._rows) == 1
            and not only.is_bar
            and not only.at_start
            and "\r" not in text
            and "\x1b[" not in text
        ):
            *lines, only.text = (only.text + text).split("\n")
            return lines
        for piece in _MOVEMENTS.split(text):
            if piece:
                self._put(piece)
        finished = []
        while self._cursor > 0 and self._may_go():
            finished += self._drop_first()
        return finished

    def settle(self) -> list[str]:
        """Nothing has followed for a while: what lies above the cursor is finished."""
        finished = []
        while self._cursor > 0:
            finished += self._drop_first()
        return finished

    def finish(self) -> list[str]:
        """Everything that is left, as it is."""
        rows = list(self.rows)
        self._rows, self._cursor = [_Row()], 0
        return rows

    def _put(self, piece: str) -> None:
        row = self._rows[self._cursor]
        if piece == "\n":
            self._cursor += 1
            if self._cursor == len(self._rows):
                self._rows.append(_Row())
            else:
                below = self._rows[self._cursor]
                below.at_start, below.returned = True, False
        elif piece == "\r":
            row.at_start = row.returned = True
        elif piece.startswith("\x1b[") and piece.endswith("A"):
            self._cursor = max(0, self._cursor - int(piece[2:-1] or 1))
        elif row.at_start:
            row.text, row.is_bar, row.at_start = piece, row.returned, False
        else:
            row.text += piece

    def _may_go(self) -> bool:
        """Whether the first row is no bar, or one that was not drawn for others: text that is none
        stands below it.
        """
        others = self._rows[1:]
        return (
            not self._rows[0].is_bar
            or len(others) > MAX_ROWS
            or any(row.text.strip() and not row.is_bar for row in others)
        )

    def _drop_first(self) -> list[str]:
        self._cursor -= 1
        row = self._rows.pop(0)
        return [] if row.is_bar and not row.text.strip() else [row.text]
