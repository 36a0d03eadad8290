"""What an examination of a module says: pieces of text to replace, and notes for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

NoteKind = Literal["no counterpart", "argument", "environment", "command", "look"]


class Unparsable(ValueError):
    """A file whose program cannot be read; the message says where and why."""


@dataclass(frozen=True, kw_only=True, order=True)
class Edit:
    """Bytes `start` to `end` of a module's UTF-8 text become `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, kw_only=True, order=True)
class Note:
    """Something that a person has to look at.

    Attributes:
        line: Line of the module, from 1.
        name: What stands there: a dotted name, a variable, a command.
        kind: "no counterpart" and "argument" will not work, the others may need a change.
        message: What is the matter, and what to do instead.
    """

    line: int
    name: str
    kind: NoteKind
    message: str


@dataclass(frozen=True, kw_only=True)
class Examination:
    """Edits in the order of the text, and notes in the order of lines."""

    edits: tuple[Edit, ...] = ()
    notes: tuple[Note, ...] = ()


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text with its edits made; edits do not overlap."""
    data, done, end = text.encode(), bytearray(), 0
    for edit in sorted(edits):
        done += data[end : edit.start] + edit.text.encode()
        end = edit.end
    return (done + data[end:]).decode()
