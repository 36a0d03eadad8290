"""Files to convert: programs, and Jupyter notebooks of format 4.

Directories are searched for `.py` and `.ipynb`, without links, version control, caches and virtual
environments; files given by name may have any suffix. Files that do not mention Ray are not parsed.

The code cells of a notebook form one module, because names pass from cell to cell. A cell that
does not parse is reported and left unchanged, as are IPython's lines (`%time`, `!ls`, `x = !ls`,
`help?`) and cells in other languages (`%%bash`). Only the changed strings of the JSON text are
replaced; all other bytes stay.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import libcst

from syncline.cli.migration.rewrite import Edit, Note, Unparsable, apply, command_notes, examine
from syncline.storage.filesystem import write_local

SUFFIXES = frozenset({".ipynb", ".py"})
SKIPPED = frozenset({"__pycache__", "build", "dist", "node_modules", "site-packages"})
"""Directories that are not searched, besides hidden ones and virtual environments."""
PYTHON_MAGICS = frozenset({"%%capture", "%%prun", "%%time", "%%timeit"})
"""Magics of cells whose other lines are Python."""
_MENTIONS_RAY = re.compile(rb"\bray\b|\bRAY_|\bTUNE_RESULT_DIR\b")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_MAGIC = re.compile(r"^(\s*(?:[\w.,\s]+=\s*)?)([!%].*)$")
_HELP = re.compile(r"^(\s*)(\??\??[\w.*]+\?{1,2}|\?{1,2}[\w.*]+)\s*$")


class Change(NamedTuple):
    """Text of a program, or of a notebook cell, before and after the conversion."""

    cell: int | None
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Migration:
    """Result of examining one file."""

    path: Path
    changes: Sequence[Change] = ()
    """Changed texts; empty if the file needs no change."""
    notes: Sequence[Note] = ()
    errors: Sequence[str] = ()
    """Reasons why the file, or some of its cells, could not be read."""
    content: bytes = b""
    """New content of the file."""


def find_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the given files, and those below the given directories, each once.

    Raises:
        FileNotFoundError: One of the paths does not exist.
    """
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(path)
        for file in _files_below(path) if path.is_dir() else [path]:
            if (resolved := file.resolve()) not in seen:
                seen.add(resolved)
                yield file


def _files_below(directory: Path) -> Iterator[Path]:
    for folder, directories, names in os.walk(directory):
        directories[:] = sorted(
            name
            for name in directories
            if name not in SKIPPED
            and not name.startswith(".")
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
        )
        files = [Path(folder, name) for name in sorted(names)]
        yield from (file for file in files if file.suffix in SUFFIXES and file.is_file())


def migrate(path: Path) -> Migration:
    """Examine one file without changing it."""
    try:
        data = path.read_bytes()
        if _MENTIONS_RAY.search(data) is None:
            return Migration(path=path)
        if path.suffix == ".ipynb":
            return _migrate_notebook(path, data.decode())
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        before = data.decode(encoding)
        edits, notes = examine(before)
        after = apply(before, edits)
        changes = [Change(None, before, after)] if edits else []
        return Migration(path=path, changes=changes, notes=notes, content=after.encode(encoding))
    except (OSError, SyntaxError, UnicodeError, Unparsable) as error:
        return Migration(path=path, errors=[str(error)])


def write(migration: Migration) -> None:
    """Replace the file atomically; its mode stays, and a link remains one. Raises OSError."""
    target = migration.path.resolve()
    mode = target.stat().st_mode
    write_local(str(target), migration.content)
    target.chmod(stat.S_IMODE(mode))


class _String(NamedTuple):
    """A string of a JSON file, and its position there, quotes included."""

    start: int
    end: int
    text: str


class _Cell(NamedTuple):
    """A code cell: its number from 1 among all cells, and the strings of its source."""

    number: int
    strings: Sequence[_String]
    python: str
    """As many bytes and lines as the source, and a newline; comments if the cell does not parse."""
    notes: Sequence[Note]
    error: str | None


def _migrate_notebook(path: Path, raw: str) -> Migration:
    cells = _code_cells(raw)
    edits, found = examine("".join(cell.python for cell in cells))
    changes: list[Change] = []
    notes: list[Note] = []
    content: list[str] = []
    written, at, line = 0, 0, 1  # character of the file, byte and line of the module
    for cell in cells:
        after, start, end_line = "", at, line + cell.python.count("\n")
        for string in cell.strings:
            stop = start + len(string.text.encode())
            inside = [edit for edit in edits if start <= edit.start < stop]
            if inside:
                changed = apply(
                    string.text,
                    [Edit(edit.start - start, edit.end - start, edit.text) for edit in inside],
                )
                is_ascii = raw[string.start : string.end].isascii()
                content += [raw[written : string.start], json.dumps(changed, ensure_ascii=is_ascii)]
                written = string.end
            after += changed if inside else string.text
            start = stop
        before = "".join(string.text for string in cell.strings)
        if after != before:
            changes.append(Change(cell.number, before, after))
        inside_cell = [
            note._replace(line=note.line - line + 1)
            for note in found
            if line <= note.line < end_line
        ]
        notes += [note._replace(cell=cell.number) for note in sorted([*inside_cell, *cell.notes])]
        at, line = at + len(cell.python.encode()), end_line
    return Migration(
        path=path,
        changes=changes,
        notes=notes,
        errors=[f"cell {cell.number}: {cell.error}" for cell in cells if cell.error],
        content="".join([*content, raw[written:]]).encode(),
    )


def _code_cells(raw: str) -> list[_Cell]:
    """Parse a notebook. Raises Unparsable."""
    strings: dict[str, _String] = {}

    def marked(match: re.Match[str]) -> str:
        strings[str(match.start())] = _String(*match.span(), json.loads(match.group()))
        return f'"{match.start()}"'

    def with_keys(members: Iterable[tuple[str, object]]) -> dict[str, Any]:
        return {strings[key].text: value for key, value in members}

    try:
        content = json.loads(_STRING.sub(marked, raw), object_pairs_hook=with_keys)
        cells = [(strings[cell["cell_type"]], cell["source"]) for cell in content["cells"]]
        return [
            _code_cell(
                number,
                [strings[each] for each in ([source] if isinstance(source, str) else source)],
            )
            for number, (kind, source) in enumerate(cells, start=1)
            if kind.text == "code"
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise Unparsable(f"not a notebook of format 4: {error!r}") from None


def _code_cell(number: int, strings: Sequence[_String]) -> _Cell:
    source = "".join(string.text for string in strings)
    blank = "\n".join("#" * len(line.encode()) for line in source.split("\n")) + "\n"
    magic = "".join(source.split(maxsplit=1)[:1])
    if magic.startswith("%%") and magic not in PYTHON_MAGICS:
        lines = enumerate(source.splitlines() if magic in ("%%bash", "%%sh") else [], start=1)
        notes = [note for at, line in lines for note in command_notes(line, at)]
        return _Cell(number, strings, blank, notes, None)
    python, notes, is_continued = "", [], False
    for at, line in enumerate(source.split("\n"), start=1):
        match = None if is_continued else _MAGIC.match(line) or _HELP.match(line)
        head, rest = ("", line) if is_continued else match.groups() if match else (line, "")
        notes += command_notes(rest.lstrip("!%").strip(), at)
        if rest:  # no effect in Python: a comment, after an expression where one may be needed
            size = len(rest.encode())
            rest = "#" * size if is_continued else "0" + "#" * (size - 1)
        python += head + rest + "\n"
        is_continued = (is_continued or match is not None) and line.endswith("\\")
    try:
        libcst.parse_module(python)
    except libcst.ParserSyntaxError as error:
        return _Cell(number, strings, blank, [], f"line {error.raw_line}: {error.message}")
    return _Cell(number, strings, python, notes, None)
