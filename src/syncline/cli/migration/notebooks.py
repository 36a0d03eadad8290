"""Jupyter notebooks: their code cells as one module, and the same file again with only their lines
changed.

Names go from cell to cell, so that cells are examined together; one that is no Python is left out
and reported. Lines for IPython (`%time`, `!ls`, `x = !ls`, `help?`) stand still, and cells in other
languages (`%%bash`) are passed over. Outputs and metadata stay as they are to the byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst

from syncline.cli.migration.edits import Edit, Unparsable

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')
_MAGIC = re.compile(r"^(\s*(?:[\w.,\s]+=\s*)?)([!%].*)$")
_HELP = re.compile(r"^(\s*)(\??\??[\w.*]+\?{1,2}|\?{1,2}[\w.*]+)\s*$")
PYTHON_MAGICS = frozenset({"%%capture", "%%prun", "%%time", "%%timeit"})
"""Magics of whole cells that are Python all the same."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A string of the file that is a part of a cell: its place in the file, and in the text of all
    cells, in bytes.
    """

    file_start: int
    file_end: int
    text: str
    start: int


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A code cell.

    Attributes:
        number: Which cell of the notebook it is, from 1, counting all kinds.
        first_line: Its first line in the text of all cells, from 1.
        lines: How many it has.
        pieces: The strings that it is made of.
        shell: (line in the cell, from 1; line) of what IPython gives to a shell.
        error: Why it is no Python; it is blank in the text then.
    """

    number: int
    first_line: int
    lines: int
    pieces: tuple[Piece, ...]
    shell: tuple[tuple[int, str], ...]
    error: str | None

    @property
    def source(self) -> str:
        """What a person sees in it."""
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, kw_only=True)
class Notebook:
    """A notebook's file, and its code cells as the text of one module."""

    raw: str
    text: str
    cells: tuple[Cell, ...]

    def with_edits(self, edits: Sequence[Edit]) -> str:
        """The file with edits of `text` made in it."""
        done, end = [], 0
        for cell in self.cells:
            for piece in cell.pieces:
                changed = _edited(piece, edits)
                if changed != piece.text:
                    token = json.dumps(
                        changed, ensure_ascii=self.raw[piece.file_start : piece.file_end].isascii()
                    )
                    done += [self.raw[end : piece.file_start], token]
                    end = piece.file_end
        return "".join([*done, self.raw[end:]])

    def place(self, line: int) -> tuple[int, int]:
        """(number of the cell, line in it) of a line of `text`."""
        cell = next(cell for cell in self.cells if line < cell.first_line + cell.lines)
        return cell.number, line - cell.first_line + 1

    def shell_lines(self) -> Iterator[tuple[int, str]]:
        """(line of `text`, line) of everything that IPython gives to a shell."""
        return (
            (cell.first_line + line - 1, text) for cell in self.cells for line, text in cell.shell
        )


def parse(raw: str) -> Notebook:
    """Read a notebook's file.

    Raises:
        Unparsable: It is no notebook of format 4.
    """
    try:
        content = json.loads(raw)
        kinds = [(cell["cell_type"], cell["source"]) for cell in content["cells"]]
    except (ValueError, KeyError, TypeError) as error:
        raise Unparsable(f"it is no notebook of format 4: {error!r}") from None
    spans: dict[str | int, list[tuple[int, int]]] = {}
    for path, span in _strings(raw):
        if path[0] == "cells" and path[2:3] == ("source",):
            spans.setdefault(path[1], []).append(span)
    cells, texts, start, line = [], [], 0, 1
    for index, (kind, source) in enumerate(kinds):
        if kind != "code":
            continue
        pieces, at = [], start
        for (file_start, file_end), text in zip(
            spans.get(index, []), [source] if isinstance(source, str) else source, strict=True
        ):
            pieces.append(Piece(file_start=file_start, file_end=file_end, text=text, start=at))
            at += len(text.encode())
        text, shell, wrong = _as_python("".join(piece.text for piece in pieces))
        text += "\n"
        lines = text.count("\n")
        cells.append(
            Cell(
                number=index + 1,
                first_line=line,
                lines=lines,
                pieces=tuple(pieces),
                shell=shell,
                error=wrong,
            )
        )
        texts.append(text)
        start, line = start + len(text.encode()), line + lines
    return Notebook(raw=raw, text="".join(texts), cells=tuple(cells))


def _edited(piece: Piece, edits: Sequence[Edit]) -> str:
    data, done, end = piece.text.encode(), bytearray(), 0
    for edit in edits:
        if piece.start <= edit.start and edit.end <= piece.start + len(data):
            done += data[end : edit.start - piece.start] + edit.text.encode()
            end = edit.end - piece.start
    return (done + data[end:]).decode()


def _as_python(source: str) -> tuple[str, tuple[tuple[int, str], ...], str | None]:
    """(text of as many bytes and lines that parses, lines for a shell, why it does not parse)."""
    first = source.lstrip().split(maxsplit=1)[:1]
    if first and first[0].startswith("%%") and first[0] not in PYTHON_MAGICS:
        shell = (
            tuple(enumerate(source.splitlines(), start=1)) if first[0] in ("%%bash", "%%sh") else ()
        )
        return _blank(source), shell, None
    lines, shell_lines, continued = [], [], False
    for number, line in enumerate(source.split("\n"), start=1):
        match = _MAGIC.match(line) or _HELP.match(line)
        if continued:
            shell_lines.append((number, line.strip()))
            lines.append(_blank(line))
        elif match:
            head, rest = match.groups()
            shell_lines.append((number, rest.lstrip("!%").strip()))
            lines.append(head + _still(rest))
        else:
            lines.append(line)
        continued = (continued or match is not None) and line.endswith("\\")
    text = "\n".join(lines)
    try:
        libcst.parse_module(text)
    except libcst.ParserSyntaxError as error:
        return _blank(source), (), f"line {error.raw_line}: {error.message}"
    return text, tuple(shell_lines), None


def _still(text: str) -> str:
    """An expression that does nothing, of as many bytes."""
    return ("0" + "#" * (len(text.encode()) - 1)) if text else ""


def _blank(text: str) -> str:
    """Comments, of as many bytes."""
    return "\n".join("#" * len(line.encode()) for line in text.split("\n"))


def _strings(raw: str) -> Iterator[tuple[tuple[str | int, ...], tuple[int, int]]]:
    """(path, (start, end)) of every string value in a JSON text that is known to be well formed."""
    path: list[str | int] = []
    key_next: list[bool] = []
    for match in _TOKEN.finditer(raw):
        token = match.group()
        if token in "[{":
            path.append(0 if token == "[" else "")
            key_next.append(token == "{")
        elif token in "]}":
            path.pop()
            key_next.pop()
        elif token == ",":
            last = path[-1]
            if isinstance(last, int):
                path[-1] = last + 1
            else:
                key_next[-1] = True
        elif key_next and key_next[-1] and token.startswith('"'):
            path[-1] = json.loads(token)
            key_next[-1] = False
        elif token.startswith('"'):
            yield tuple(path), match.span()
