"""A snapshot as HTML, for notebooks. Everything that comes from the program is escaped."""

from __future__ import annotations

from html import escape

from syncline.train.console.rows import PROGRESS, closing_lines, rows, title
from syncline.train.console.snapshot import Snapshot

_STYLE = """<style>
.syncline-train { font-family: sans-serif; font-size: 12px; overflow-x: auto; }
.syncline-train table { border-collapse: collapse; margin: 6px 0; font-size: 12px; }
.syncline-train th { text-align: left; font-weight: normal; opacity: 0.6; padding: 2px 12px 2px 0; vertical-align: top; }
.syncline-train td { text-align: left; padding: 2px 0; font-variant-numeric: tabular-nums; }
.syncline-train progress { width: 240px; margin-right: 8px; vertical-align: middle; }
</style>"""


def page(snapshot: Snapshot) -> str:
    """The rows of the panel in a table; of a run that is over, its summary."""
    if snapshot.phase.is_end:
        return _framed("".join(f"<div>{escape(line)}</div>" for line in closing_lines(snapshot)))
    made = []
    for row in rows(snapshot):
        text = escape(", ".join(row.parts))
        if row.label == PROGRESS and snapshot.progress is not None:
            text = f'<progress value="{snapshot.progress.share:.4f}" max="1"></progress>{text}'
        made.append(f"<tr><th>{escape(row.label)}</th><td>{text}</td></tr>")
    return _framed(f"<div><b>{escape(title(snapshot))}</b></div><table>{''.join(made)}</table>")


def _framed(inside: str) -> str:
    return f'{_STYLE}<div class="syncline-train">{inside}</div>'
