"""Files that are looked at, and one of them from reading to writing.

Directories are searched for `.py` and `.ipynb`; version control, caches, virtual environments and
what a link leads to are left out. A file that is named is looked at whatever it is called. Files
that do not speak of Ray are not even parsed.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import tempfile
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from syncline.cli.migration import notebooks
from syncline.cli.migration.edits import Edit, Note, Unparsable, apply
from syncline.cli.migration.examine import command_note, examine
from syncline.cli.migration.notebooks import Notebook
from syncline.cli.migration.strings import command_lines
from syncline.cli.migration.surface import Surface

SUFFIXES = frozenset({".ipynb", ".py"})
NEVER = frozenset({"__pycache__", "build", "dist", "node_modules", "site-packages"})
"""Directories that are passed over, as are those whose names begin with a dot, and virtual
environments.
"""
_SPEAKS_OF_RAY = re.compile(rb"\bray\b|\bRAY_|\bTUNE_RESULT_DIR\b")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One text of a file, before and after: a program, or a cell of a notebook."""

    cell: int | None
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Located:
    """A note, and the cell of a notebook that its line counts in."""

    cell: int | None
    note: Note


@dataclass(frozen=True, kw_only=True)
class Migration:
    """What is to be done about a file.

    Attributes:
        path: The file.
        changes: What changes in it; nothing does if there are none.
        notes: What a person has to look at.
        errors: Why it, or some of its cells, could not be read.
        content: The new bytes of the file.
    """

    path: Path
    changes: tuple[Change, ...] = ()
    notes: tuple[Located, ...] = ()
    errors: tuple[str, ...] = ()
    content: bytes = b""


def find(paths: Sequence[Path]) -> Iterator[Path]:
    """The files that `paths` name and those below the directories among them, each once.

    Raises:
        FileNotFoundError: There is nothing at one of them.
    """
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(path)
        for file in _below(path) if path.is_dir() else [path]:
            if (resolved := file.resolve()) not in seen:
                seen.add(resolved)
                yield file


def _below(directory: Path) -> Iterator[Path]:
    for folder, directories, names in os.walk(directory):
        directories[:] = sorted(
            name
            for name in directories
            if name not in NEVER
            and not name.startswith(".")
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
        )
        for name in sorted(names):
            if os.path.splitext(name)[1] in SUFFIXES and os.path.isfile(
                path := os.path.join(folder, name)
            ):
                yield Path(path)


def migrate(path: Path, surface: Surface) -> Migration:
    """Look at one file. It is not changed."""
    try:
        data = path.read_bytes()
        if _SPEAKS_OF_RAY.search(data) is None:
            return Migration(path=path)
        return (
            _notebook(path, data, surface)
            if path.suffix == ".ipynb"
            else _program(path, data, surface)
        )
    except (OSError, SyntaxError, UnicodeError, Unparsable) as error:
        return Migration(path=path, errors=(str(error),))


def _program(path: Path, data: bytes, surface: Surface) -> Migration:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    text = data.decode(encoding)
    found = examine(text, surface)
    after = apply(text, found.edits)
    return Migration(
        path=path,
        changes=(Change(cell=None, before=text, after=after),) if after != text else (),
        notes=tuple(Located(cell=None, note=note) for note in found.notes),
        content=after.encode(encoding),
    )


def _notebook(path: Path, data: bytes, surface: Surface) -> Migration:
    notebook = notebooks.parse(data.decode())
    found = examine(notebook.text, surface)
    commands = [
        command_note(line, name)
        for line, text in notebook.shell_lines()
        for name in command_lines(text)
    ]
    return Migration(
        path=path,
        changes=tuple(_cells_changed(notebook, found.edits)),
        notes=tuple(_located(notebook, sorted([*found.notes, *commands]))),
        errors=tuple(
            f"cell {cell.number}: {cell.error}" for cell in notebook.cells if cell.error is not None
        ),
        content=notebook.with_edits(found.edits).encode(),
    )


def _cells_changed(notebook: Notebook, edits: Sequence[Edit]) -> Iterator[Change]:
    changed = notebooks.parse(notebook.with_edits(edits))
    for before, after in zip(notebook.cells, changed.cells, strict=True):
        if before.source != after.source:
            yield Change(cell=before.number, before=before.source, after=after.source)


def _located(notebook: Notebook, notes: Sequence[Note]) -> Iterator[Located]:
    for note in notes:
        cell, line = notebook.place(note.line)
        yield Located(
            cell=cell, note=Note(line=line, name=note.name, kind=note.kind, message=note.message)
        )


def write(migration: Migration) -> None:
    """Put the new content in the place of the file, whole or not at all; its mode stays, and a link
    stays one. OSError where it fails.
    """
    target = migration.path.resolve()
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(migration.content)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
