"""Tables of a snapshot: with rich for terminals and plain text, in HTML for notebooks.

A table that is too wide drops columns: first the location, then metrics and parameters from the
right, so that names, statuses and the first metric stay readable. A note lists dropped columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from io import StringIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from syncline.train.console.formatting import shortened
from syncline.tune.console.snapshot import Column, Failure, Snapshot, hidden_text

STYLES = {
    "RUNNING": "green",
    "PENDING": "dim",
    "PAUSED": "yellow",
    "TERMINATED": "",
    "ERROR": "red",
}
_BESIDE_CELL = 3
"""Characters per column in addition to its cells: a space on both sides and a line."""
_SHORTEST_NAME = 12
ERROR_HEADINGS = ("Trial name", "# failures", "error", "error file")


def trials_table(
    snapshot: Snapshot, width: int | None, *, border: box.Box = box.ROUNDED
) -> RenderableType:
    """Return the table of trials with notes below; `width` is in characters, None for no limit."""
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
    """Return the table of the last `failures` of `failed` failed trials; plain lines if it is wider
    than `width`.
    """
    rows = [_error_row(failure) for failure in failures]
    left_out = failed - len(failures)
    note = f", of which the first {left_out} are not shown" if left_out else ""
    parts: list[RenderableType] = [Text(f"Number of errored trials: {failed}{note}", style="red")]
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
        parts.append(Text("* The trial was restarted."))
    return Group(*parts)


def fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Return the positions of the columns that fit into `width` characters, given the widths of
    their cells. The name column may shrink but is always included.
    """
    shown = list(range(len(columns)))
    least = [min(widths[0], _SHORTEST_NAME), *widths[1:]]
    for position in _sacrifices(columns):
        # Complete names are more useful than locations; shortened names suffice otherwise.
        if _taken(widths if columns[position].kind == "location" else least, shown) <= width:
            break
        shown.remove(position)
    return shown


def as_text(renderable: RenderableType, width: int = 10_000) -> str:
    """Return the text that a terminal of this width shows, without colours and trailing spaces."""
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
    """Return the total width of the given columns."""
    return sum(widths[at] for at in shown) + _BESIDE_CELL * len(shown) + 1


def _sacrifices(columns: Sequence[Column]) -> list[int]:
    """Return positions in the order in which columns are dropped."""
    by_kind = {
        kind: [at for at, column in enumerate(columns) if column.kind == kind]
        for kind in ("location", "metric", "parameter", "progress", "status")
    }
    metrics = by_kind["metric"]
    return [
        *by_kind["location"],
        *metrics[:1:-1],
        *by_kind["parameter"][:1:-1],
        *by_kind["progress"][1:],
        *by_kind["parameter"][1::-1],
        *metrics[1:2],
        *by_kind["progress"][:1],
        *metrics[:1],
        *by_kind["status"],
    ]


# -- HTML


_COLOURS = {"RUNNING": "#2a8a3e", "PAUSED": "#b07d00", "ERROR": "#c62828", "PENDING": "#888888"}
_STYLE = """<style>
.syncline-tune { font-family: sans-serif; font-size: 12px; overflow-x: auto; }
.syncline-tune table { border-collapse: collapse; margin: 6px 0; font-size: 12px; }
.syncline-tune th { text-align: left; border-bottom: 1px solid #999999; padding: 2px 10px 2px 0; }
.syncline-tune td { text-align: left; padding: 2px 10px 2px 0; white-space: nowrap; }
.syncline-tune .number { text-align: right; font-variant-numeric: tabular-nums; }
</style>"""


def page(snapshot: Snapshot, lines: Sequence[str]) -> str:
    """Return `lines` and the tables of trials and errors as HTML. User text is escaped."""
    parts = [f"<div>{escape(line)}</div>" for line in lines]
    if snapshot.rows:
        parts.append(_trials_html(snapshot))
    if snapshot.hidden:
        parts.append(f"<div>{escape(hidden_text(snapshot))}</div>")
    if snapshot.failures:
        parts.append(f"<div>Number of errored trials: {snapshot.failed}</div>")
        parts.append(_errors_html(snapshot))
    return f'{_STYLE}<div class="syncline-tune">{"".join(parts)}</div>'


def _trials_html(snapshot: Snapshot) -> str:
    kinds = [' class="number"' if column.is_numeric else "" for column in snapshot.columns]
    heads = [
        f"<th{kind}>{escape(column.heading)}</th>"
        for kind, column in zip(kinds, snapshot.columns, strict=True)
    ]
    rows = []
    for row in snapshot.rows:
        cells = []
        for kind, column, text in zip(kinds, snapshot.columns, row, strict=True):
            colour = _COLOURS.get(text) if column.kind == "status" else None
            style = f' style="color: {colour}"' if colour else ""
            cells.append(f"<td{kind}{style}>{escape(text)}</td>")
        rows.append(cells)
    return _table_html(heads, rows)


def _errors_html(snapshot: Snapshot) -> str:
    rows = [[f"<td>{escape(text)}</td>" for text in _error_row(one)] for one in snapshot.failures]
    return _table_html([f"<th>{text}</th>" for text in ERROR_HEADINGS], rows)


def _error_row(failure: Failure) -> tuple[str, str, str, str]:
    times = f"{failure.times}{'*' if failure.recovered else ''}"
    return failure.trial, times, failure.message, failure.file


def _table_html(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return f"<table><thead><tr>{''.join(heads)}</tr></thead><tbody>{body}</tbody></table>"
