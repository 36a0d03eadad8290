"""A snapshot as HTML, for notebooks. Everything that comes from the program is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from syncline.tune.console.snapshot import Snapshot
from syncline.tune.console.summary import hidden_text
from syncline.tune.console.tables import ERROR_HEADINGS

_COLOURS = {"RUNNING": "#2a8a3e", "PAUSED": "#b07d00", "ERROR": "#c62828", "PENDING": "#888888"}
_STYLE = """<style>
.syncline-tune { font-family: sans-serif; font-size: 12px; overflow-x: auto; }
.syncline-tune table { border-collapse: collapse; margin: 6px 0; font-size: 12px; }
.syncline-tune th { text-align: left; border-bottom: 1px solid #999999; padding: 2px 10px 2px 0; }
.syncline-tune td { text-align: left; padding: 2px 10px 2px 0; white-space: nowrap; }
.syncline-tune .number { text-align: right; font-variant-numeric: tabular-nums; }
</style>"""


def page(snapshot: Snapshot, lines: Sequence[str]) -> str:
    """Lines of text, then the tables of trials and of errors."""
    parts = [f"<div>{escape(line)}</div>" for line in lines]
    if snapshot.rows:
        parts.append(_trials(snapshot))
    if snapshot.hidden:
        parts.append(f"<div>{escape(hidden_text(snapshot))}</div>")
    if snapshot.failures:
        parts.append(f"<div>Number of errored trials: {snapshot.failed}</div>{_errors(snapshot)}")
    return f'{_STYLE}<div class="syncline-tune">{"".join(parts)}</div>'


def _trials(snapshot: Snapshot) -> str:
    kinds = [' class="number"' if column.is_numeric else "" for column in snapshot.columns]
    heads = "".join(
        f"<th{kind}>{escape(column.heading)}</th>"
        for kind, column in zip(kinds, snapshot.columns, strict=True)
    )
    rows = []
    for row in snapshot.rows:
        cells = []
        for kind, column, text in zip(kinds, snapshot.columns, row, strict=True):
            colour = _COLOURS.get(text) if column.kind == "status" else None
            cells.append(
                f"<td{kind}{f' style={chr(34)}color: {colour}{chr(34)}' if colour else ''}>{escape(text)}</td>"
            )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _errors(snapshot: Snapshot) -> str:
    rows = []
    for failure in snapshot.failures:
        count = f"{failure.times}{'*' if failure.recovered else ''}"
        cells = "".join(
            f"<td>{escape(text)}</td>"
            for text in (failure.trial, count, failure.message, failure.file)
        )
        rows.append(f"<tr>{cells}</tr>")
    heads = "".join(f"<th>{text}</th>" for text in ERROR_HEADINGS)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
