"""`migrate`: convert programs written for Ray. Prints a diff unless --write is given."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from syncline.cli.output import FAILED, CommandError, json_option, print_json, warn

try:
    from syncline.cli.migration.files import Change, Migration, find_files, migrate
    from syncline.cli.migration.files import write as write_file
except ModuleNotFoundError as error:
    if error.name != "libcst":
        raise
    raise CommandError(
        "`syncline migrate` needs the library 'libcst', which is not installed:"
        ' run `pip install "syncline[cli]"`'
    ) from None

_COLORS = {"+": "green", "-": "red", "@": "cyan"}


@click.command(name="migrate")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH…")
@click.option("--write", is_flag=True, help="Write the changes to the files.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file would change.")
@json_option
@click.pass_context
def migrate_command(
    context: click.Context, paths: tuple[Path, ...], write: bool, check: bool, as_json: bool
) -> None:
    """Convert programs written for Ray: files and directories, .py and .ipynb.

    Rewrites imports and the names that refer to them; comments and formatting stay. Prints a diff
    and writes nothing unless --write is given. Then lists the names that syncline lacks, and what
    else to check, with advice.
    """
    if write and check:
        raise click.UsageError("--check writes nothing and --write writes the files: give only one")
    try:
        migrations = [_migrated(path, write) for path in find_files(paths)]
    except FileNotFoundError as error:
        raise CommandError(f"there is no {str(error.args[0])!r}: correct the path") from None
    if as_json:
        print_json({"files": [_as_json(each, write) for each in migrations if _has_report(each)]})
    else:
        _show(migrations, write)
    if any(each.errors or (check and each.changes) for each in migrations):
        context.exit(FAILED)


def _migrated(path: Path, write: bool) -> Migration:
    migration = migrate(path)
    if write and migration.changes:
        try:
            write_file(migration)
        except OSError as error:
            return Migration(path=path, errors=[f"cannot write the file: {error}"])
    return migration


def _has_report(migration: Migration) -> bool:
    return bool(migration.changes or migration.notes or migration.errors)


def _as_json(migration: Migration, write: bool) -> dict[str, object]:
    lines = [line for change in migration.changes for line in _diff(migration.path, change)]
    return {
        "path": str(migration.path),
        "changed": bool(migration.changes),
        "written": write and bool(migration.changes),
        "diff": "".join(line + "\n" for line in lines),
        "notes": [note._asdict() for note in migration.notes],
        "errors": list(migration.errors),
    }


def _show(migrations: Sequence[Migration], write: bool) -> None:
    for each in migrations:
        for change in each.changes:
            for line in _diff(each.path, change):
                is_heading = line.startswith(("---", "+++"))
                color = None if is_heading else _COLORS.get(line[:1])
                click.secho(line, bold=is_heading or None, fg=color)
    for each in migrations:
        for note in each.notes:
            cell = "" if note.cell is None else f"cell {note.cell}:"
            position = click.style(f"{each.path}:{cell}{note.line}", bold=True)
            fails = note.kind in ("no counterpart", "argument")
            name = click.style(note.name, fg="red" if fails else "yellow")
            click.echo(f"{position}: {name}: {note.message}")
        for error in each.errors:
            warn(f"{each.path} is unchanged, or partly unchanged: {error}")
    changed = sum(bool(each.changes) for each in migrations)
    click.echo(
        f"{len(migrations)} file{'s' if len(migrations) != 1 else ''} examined, {changed}"
        f" {'changed' if write else 'to change (use --write)'},"
        f" {sum(len(each.notes) for each in migrations)} to check by hand.",
        err=True,
    )


def _diff(path: Path, change: Change) -> Iterator[str]:
    name = str(path) if change.cell is None else f"{path}, cell {change.cell}"
    before, after = change.before.splitlines(), change.after.splitlines()
    return difflib.unified_diff(before, after, name, name, lineterm="")
