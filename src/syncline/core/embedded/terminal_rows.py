"""Rows at the bottom of a terminal that are redrawn in place: texts with control sequences. Pure.

`live_region.UnfinishedRows` interprets the same sequences.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

ERASE = "\x1b[G\x1b[K\n\x1b[J\x1b[A"
"""Erases the cursor's row and the rows below."""
_NUMBER = re.compile("([0-9]+)")
_STYLES = re.compile("(\x1b\\[[0-9;]*m)")


class Size(NamedTuple):
    """Size of a terminal in characters."""

    columns: int
    lines: int


def block_text(rows: Sequence[str]) -> str:
    """Return the text that draws rows below the cursor and moves it back.

    The cursor's row may have text of the driver left of the cursor, such as a prompt.
    """
    count = len(rows)
    reserved = "\x1bD" * count + f"\x1b[{count}A" if rows else ""  # scrolls if needed
    return f"\x1b[K{reserved}\x1b7\n" + "\x1b[K\n".join(rows) + "\x1b[J\x1b8"


def by_numbers(text: str) -> list[str | int]:
    """Return a key that sorts `rank 10` after `rank 9`."""
    return [int(part) if index % 2 else part for index, part in enumerate(_NUMBER.split(text))]


def fit(row: str, columns: int) -> str:
    """Return a row cut to a number of columns, without control characters."""
    shown: list[str] = []
    for index, piece in enumerate(_STYLES.split(row)):
        if index % 2:  # a colour
            shown.append(piece)
            continue
        for character in piece.replace("\t", " "):
            columns -= _width(character)
            if columns < 0:
                return "".join([*shown, "\x1b[0m"]) if "\x1b" in row else "".join(shown)
            if character.isprintable():
                shown.append(character)
    return "".join(shown)


def _width(character: str) -> int:
    """Return the number of columns of a character."""
    if " " <= character <= "~":
        return 1
    if unicodedata.category(character) in ("Cc", "Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
