"""Output of commands: tables for people, JSON for scripts, errors with exit codes.

Tables fit the terminal (80 columns without one): columns in `folding` wrap. `one_line_rows` prints
one line for each row, so that `grep` finds whole rows. JSON goes to stdout alone, one object, or
one object per line for streams; everything else goes to stderr.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from syncline import settings
from syncline.runs.durations import duration

FAILED = 1
"""Exit code of a command that failed or found a problem."""


class CommandError(click.ClickException):
    """The command failed; the message says what happened, why, and what to do."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        # click declares the exit code on the class, and reads it from the error.
        self.__dict__["exit_code"] = exit_code

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error to stderr."""
        click.echo(f"syncline: {self.format_message()}", err=True, file=file)


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON with stable keys, for scripts."
)


def warn(text: str) -> None:
    """Print one line to stderr."""
    click.echo(f"syncline: {text}", err=True)


def print_json(value: object) -> None:
    """Print one value to stdout: indented in a terminal, on one line otherwise."""
    click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def console() -> Console:
    """Return a console for the current stdout."""
    return Console(highlight=False)


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    right: Sequence[str] = (),
    folding: Sequence[str] = (),
) -> Table:
    """Return an aligned table without borders.

    Args:
        columns: Headings.
        rows: One text per column.
        right: Right-aligned columns, for numbers.
        folding: Columns that wrap in a narrow terminal; the others keep their width as long as
            possible.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        made.add_column(
            name,
            justify="right" if name in right else "left",
            overflow="fold",
            no_wrap=False if name in folding else len(name) <= 8,
        )
    for row in rows:
        made.add_row(*row)
    return made


GAP = 2
"""Spaces between two columns."""


def print_one_line_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    right: Sequence[str] = (),
    flexible: Mapping[str, int],
    optional: Sequence[str] = (),
) -> None:
    """Print an aligned table with one line for each row: in a terminal at most its width, elsewhere
    with complete texts. Arguments as in `one_line_rows`.
    """
    out = console()
    fits = out.is_terminal or settings.environment("COLUMNS") is not None
    for line in one_line_rows(
        columns,
        rows,
        right=right,
        flexible=flexible,
        optional=optional,
        width=out.width if fits else None,
    ):
        out.print(line, soft_wrap=True)


def one_line_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    right: Sequence[str] = (),
    flexible: Mapping[str, int],
    optional: Sequence[str] = (),
    width: int | None,
) -> list[Text]:
    """Return the heading and one line for each row.

    Args:
        columns: Headings.
        rows: One text per column.
        right: Right-aligned columns, for numbers.
        flexible: Columns whose texts may be cut, with their least widths; the last one is cut
            first.
        optional: Columns that are left out if the others do not fit, the first one first.
        width: Width of the lines in cells; None for no limit.
    """
    cells = [[Text(name, style="bold") for name in columns]]
    cells += [
        [Text(" ".join(each.split())) if isinstance(each, str) else each for each in row]
        for row in rows
    ]
    widths = {
        name: max(row[position].cell_len for row in cells) for position, name in enumerate(columns)
    }
    if width is not None:
        widths = _fitted(widths, flexible, optional, width)
    return [_one_line(dict(zip(columns, row, strict=True)), widths, right) for row in cells]


def _fitted(
    widths: Mapping[str, int], flexible: Mapping[str, int], optional: Sequence[str], width: int
) -> dict[str, int]:
    """Return the widths of the columns that fit into `width`, see `one_line_rows`."""
    least = {name: min(length, flexible.get(name, length)) for name, length in widths.items()}

    def spare() -> int:
        return width - GAP * (len(least) - 1) - sum(least.values())

    for name in optional:
        if spare() < 0:
            del least[name]
    cut = [name for name in flexible if name in least]
    for name in reversed(cut):  # not even the least widths fit
        least[name] = max(1, least[name] + min(0, spare()))
    for name in cut:
        least[name] += max(0, min(widths[name] - least[name], spare()))
    return least


def _one_line(row: Mapping[str, Text], widths: Mapping[str, int], right: Sequence[str]) -> Text:
    line = Text()
    last = list(widths)[-1]
    for name, length in widths.items():
        text = row[name].copy()
        text.truncate(length, overflow="ellipsis")
        padding = " " * (length - text.cell_len)
        line += Text.assemble(padding, text) if name in right else text
        if name != last:
            line.append(" " * GAP if name in right else padding + " " * GAP)
    return line


STATE_STYLES: Mapping[str, str] = {
    "running": "green",
    "finished": "",
    "errored": "red",
    "killed": "red",
    "aborted": "yellow",
    "ok": "green",
    "warning": "yellow",
    "wrong": "bold red",
    "skipped": "dim",
    "alive": "green",
    "dead": "red",
}


def state(name: str) -> Text:
    """Return the name of a state, coloured in a terminal."""
    return Text(name, style=STATE_STYLES.get(name, ""))


def ago(moment: float | None, now: float | None = None) -> str:
    """Return the time since a moment (seconds since the epoch): "5 s", "3 min"; "-" for None."""
    now = time.time() if now is None else now
    return duration(None if moment is None else max(0.0, now - moment))
