"""A snapshot as tables of rich, for terminals and for plain text.

A table that is too wide gives up columns: the location first, then metrics and parameters from the
right, so that names, states and the first metric stay readable. It says which ones are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from syncline.train.console.values import shortened
from syncline.tune.console.snapshot import Column, Failure, Snapshot
from syncline.tune.console.summary import hidden_text

STYLES = {
    "RUNNING": "green",
    "PENDING": "dim",
    "PAUSED": "yellow",
    "TERMINATED": "",
    "ERROR": "red",
}
_BESIDE_CELL = 3
"""Characters that a column takes besides its cells: a space on either side and a line."""
_SHORTEST_NAME = 12
ERROR_HEADINGS = ("Trial name", "# failures", "error", "error file")


def trials_table(
    snapshot: Snapshot, width: int | None, *, border: box.Box = box.ROUNDED
) -> RenderableType:
    """The table of trials, and under it what is left out; `width` in characters, None for as wide
    as it gets.
    """
    widths = [
        max(map(cell_len, (column.heading, *(row[at] for row in snapshot.rows))))
        for at, column in enumerate(snapshot.columns)
    ]
    shown = list(range(len(widths))) if width is None else fitting(snapshot.columns, widths, width)
    if width is not None:
        widths[0] = max(1, min(widths[0], width - _taken(widths, shown) + widths[0]))
    table = Table(box=border, header_style="bold", expand=False)
    for at in shown:
        column = snapshot.columns[at]
        justify: JustifyMethod = "right" if column.is_numeric else "left"
        table.add_column(
            Text(column.heading),
            justify=justify,
            no_wrap=True,
            overflow="ellipsis",
            width=widths[at],
        )
    for row in snapshot.rows:
        table.add_row(*(_cell(snapshot.columns[at], row[at], widths[at]) for at in shown))
    missing = [column.heading for at, column in enumerate(snapshot.columns) if at not in shown]
    notes = [
        hidden_text(snapshot),
        f"Columns that do not fit: {', '.join(missing)}" if missing else "",
    ]
    return Group(
        table,
        *(Text(note, style="dim", no_wrap=True, overflow="ellipsis") for note in notes if note),
    )


def errors_table(
    failures: Sequence[Failure], failed: int, width: int | None, *, border: box.Box = box.ROUNDED
) -> RenderableType:
    """The errors, of `failed` trials that have failed in all: a table, or lines where `width` is
    too small for one.
    """
    rows = [
        (
            failure.trial,
            f"{failure.times}{'*' if failure.recovered else ''}",
            failure.message,
            failure.file,
        )
        for failure in failures
    ]
    left_out = failed - len(failures)
    parts: list[RenderableType] = [
        Text(
            f"Number of errored trials: {failed}{f', of which the first {left_out} are not shown' if left_out else ''}",
            style="red",
        )
    ]
    widths = [max(map(cell_len, cells)) for cells in zip(ERROR_HEADINGS, *rows, strict=True)]
    if width is not None and _taken(widths, range(len(widths))) > width:
        parts += [
            Text(f"{trial} ({times}): {message}\n    {file}")
            for trial, times, message, file in rows
        ]
    else:
        table = Table(box=border, header_style="bold", expand=False)
        for heading in ERROR_HEADINGS:
            table.add_column(
                heading, no_wrap=True, justify="right" if heading == "# failures" else "left"
            )
        for row in rows:
            table.add_row(*map(Text, row))
        parts.append(table)
    if any(failure.recovered for failure in failures):
        parts.append(Text("* The trial was started again."))
    return Group(*parts)


def fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Positions of the columns that fit into `width` characters, where cells take `widths`; the
    name may shrink, but never goes.
    """
    shown = list(range(len(columns)))
    least = [min(widths[0], _SHORTEST_NAME), *widths[1:]]
    for position in _sacrifices(columns):
        # Whole names are worth more than locations, short ones less than anything else.
        if _taken(widths if columns[position].kind == "location" else least, shown) <= width:
            break
        shown.remove(position)
    return shown


def as_text(renderable: RenderableType, width: int = 10_000) -> str:
    """What a terminal of that width would show, without colours and trailing spaces."""
    target = StringIO()
    Console(
        file=target,
        width=width,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
        highlight=False,
    ).print(renderable)
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines())


def _cell(column: Column, text: str, width: int) -> Text:
    if column.kind == "name":
        return Text(shortened(text, width))
    return Text(text, style=STYLES.get(text, "") if column.kind == "status" else "")


def _taken(widths: Sequence[int], shown: Sequence[int]) -> int:
    """Characters that those columns take."""
    return sum(widths[at] for at in shown) + _BESIDE_CELL * len(shown) + 1


def _sacrifices(columns: Sequence[Column]) -> list[int]:
    """Positions in the order in which columns are given up."""
    places = {
        kind: [at for at, column in enumerate(columns) if column.kind == kind]
        for kind in ("location", "metric", "parameter", "progress", "status")
    }
    metrics = places["metric"]
    return [
        *places["location"],
        *metrics[:1:-1],
        *places["parameter"][:1:-1],
        *places["progress"][1:],
        *places["parameter"][1::-1],
        *metrics[1:2],
        *places["progress"][:1],
        *metrics[:1],
        *places["status"],
    ]
