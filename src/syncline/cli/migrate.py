"""`migrate`: rewrites programs written for Ray into programs for syncline. It shows what it would
do, unless it is told to do it.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from syncline.cli.output import FAILED, CommandError, json_option, print_json, warn

if TYPE_CHECKING:
    from syncline.cli.migration.files import Change, Migration

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_KIND_COLOURS = {
    "no counterpart": "red",
    "argument": "red",
    "environment": "yellow",
    "command": "yellow",
    "look": "yellow",
}


@click.command(name="migrate")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH…")
@click.option("--write", is_flag=True, help="Change the files.")
@click.option(
    "--check", is_flag=True, help="Change nothing; exit code 1 if there is something to change."
)
@json_option
@click.pass_context
def migrate_command(
    context: click.Context, paths: tuple[Path, ...], write: bool, check: bool, as_json: bool
) -> None:
    """Rewrite programs for Ray into programs for syncline: files and directories, .py and .ipynb.

    Imports and what refers to them are changed; comments and formatting stay. Shows a diff and
    changes nothing, unless there is --write. Then it lists what syncline does not have, and what
    else needs a look, with what to do instead.
    """
    if write and check:
        raise click.UsageError(
            "--check changes nothing and --write changes the files: give one of them"
        )
    files = _files()
    try:
        found = _migrated(files, paths, write)
    except FileNotFoundError as error:
        raise CommandError(f"there is no {str(error.args[0])!r}: correct the path") from None
    if as_json:
        print_json(
            {
                "files": [
                    _as_json(migration, write) for migration in found if _says_something(migration)
                ]
            }
        )
    else:
        _show(found, write)
    if any(migration.errors for migration in found) or (
        check and any(migration.changes for migration in found)
    ):
        context.exit(FAILED)


def _files() -> ModuleType:
    """What does the work; only this command needs libcst."""
    if importlib.util.find_spec("libcst") is None:
        raise CommandError(
            'programs are rewritten with libcst, which is not installed: run `pip install "syncline[cli]"`'
        )
    return importlib.import_module("syncline.cli.migration.files")


def _migrated(files: ModuleType, paths: Sequence[Path], write: bool) -> list[Migration]:
    surface = importlib.import_module("syncline.cli.migration.surface").Surface()
    found: list[Migration] = []
    for path in files.find(paths):
        migration: Migration = files.migrate(path, surface)
        if write and migration.changes:
            try:
                files.write(migration)
            except OSError as error:
                migration = files.Migration(
                    path=path, errors=(f"it could not be written: {error}",)
                )
        found.append(migration)
    return found


def _says_something(migration: Migration) -> bool:
    return bool(migration.changes or migration.notes or migration.errors)


def _as_json(migration: Migration, write: bool) -> dict[str, Any]:
    return {
        "path": str(migration.path),
        "changed": bool(migration.changes),
        "written": write and bool(migration.changes),
        "diff": "".join(
            line + "\n" for change in migration.changes for line in _diff(migration.path, change)
        ),
        "notes": [
            {
                "line": note.note.line,
                "cell": note.cell,
                "kind": note.note.kind,
                "name": note.note.name,
                "message": note.note.message,
            }
            for note in migration.notes
        ],
        "errors": list(migration.errors),
    }


def _show(found: Sequence[Migration], write: bool) -> None:
    for migration in found:
        for change in migration.changes:
            for line in _diff(migration.path, change):
                heading = line.startswith(("---", "+++"))
                click.secho(
                    line, bold=heading or None, fg=None if heading else _COLOURS.get(line[:1])
                )
    for migration in found:
        for located in migration.notes:
            note = located.note
            cell = "" if located.cell is None else f"cell {located.cell}:"
            place = click.style(f"{migration.path}:{cell}{note.line}", bold=True)
            click.echo(
                f"{place}: {click.style(note.name, fg=_KIND_COLOURS[note.kind])}: {note.message}"
            )
        for error in migration.errors:
            warn(f"{migration.path} was left as it is, or in part: {error}")
    changed = sum(bool(migration.changes) for migration in found)
    notes = sum(len(migration.notes) for migration in found)
    count = f"{len(found)} file{'s' if len(found) != 1 else ''} looked at"
    click.echo(
        f"{count}, {changed} {'changed' if write else 'to change (--write does it)'}, {notes} to look at yourself.",
        err=True,
    )


def _diff(path: Path, change: Change) -> Iterator[str]:
    name = str(path) if change.cell is None else f"{path}, cell {change.cell}"
    lines = difflib.unified_diff(
        change.before.splitlines(), change.after.splitlines(), name, name, lineterm=""
    )
    return iter(lines)
