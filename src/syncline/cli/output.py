"""What commands print: tables for people, JSON for scripts, errors with their exit codes.

Tables fit the terminal (80 columns where there is none): columns that may give way fold. JSON goes
to stdout alone, one object, or one object a line where the answer is a stream; everything else that
is said meanwhile goes to stderr.
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

FAILED = 1
"""Exit code of a command that failed, or that found something wrong."""
USAGE = 2
"""Exit code for a command line that cannot be understood; click's own."""


class CommandError(click.ClickException):
    """The command cannot do what was asked: cause, consequence, remedy."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.__dict__["exit_code"] = (
            exit_code  # click declares it for the class, and reads it from the error
        )

    def show(self, file: IO[Any] | None = None) -> None:
        """To stderr, under our name."""
        click.echo(f"syncline: {self.format_message()}", err=True, file=file)


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for scripts; its keys stay the same."
)


def warn(text: str) -> None:
    """One line on stderr."""
    click.echo(f"syncline: {text}", err=True)


def print_json(value: Any) -> None:
    """One value on stdout: indented for a terminal, on a line of its own for a script."""
    click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def console() -> Console:
    """Writes to the present stdout."""
    return Console(highlight=False)


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    right: Sequence[str] = (),
    yielding: Sequence[str] = (),
) -> Table:
    """An aligned table without lines.

    Args:
        columns: The headings. rows: A text for each column. right: Columns aligned at their right
        end: numbers. yielding: Columns that fold where the terminal is narrow; the others keep
        their width as long as that is possible.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        made.add_column(
            name,
            justify="right" if name in right else "left",
            overflow="fold",
            no_wrap=False if name in yielding else len(name) <= 8,
        )
    for row in rows:
        made.add_row(*row)
    return made


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
    """The name of a state, coloured where there are colours."""
    return Text(name, style=STATE_STYLES.get(name, ""))


def ago(moment: float | None, now: float | None = None) -> str:
    """How long a moment, in seconds since the epoch, is past: "5 s", "3 min", "2 h", "4 d"; a dash
    for None.
    """
    return (
        "-"
        if moment is None
        else duration(max(0.0, (time.time() if now is None else now) - moment))
    )


def duration(seconds: float | None) -> str:
    """A duration with one unit; a dash for None."""
    if seconds is None:
        return "-"
    for limit, unit, length in (
        (1, "ms", 0.001),
        (100, "s", 1),
        (6_000, "min", 60),
        (172_800, "h", 3_600),
    ):
        if seconds < limit:
            return (
                f"{seconds / length:.1f} {unit}"
                if unit == "s" and seconds < 10
                else f"{seconds / length:.0f} {unit}"
            )
    return f"{seconds / 86_400:.0f} d"


def size(count_bytes: float) -> str:
    """Bytes in binary units: "512 MiB"."""
    amount = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            return (
                f"{amount:.0f} {unit}" if amount >= 100 or unit == "B" else f"{amount:.1f} {unit}"
            )
        amount /= 1024
    raise AssertionError("unreachable")


def amount(resource: str, value: float) -> str:
    """An amount of a resource: memory in binary units, the rest as a short number."""
    return size(value) if resource.endswith("memory") else f"{value:g}"
