"""A snapshot as a panel of rich: with a frame if there is room, plain rows on small screens, one
line on tiny ones. Pure.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from syncline.train.console.rows import PROGRESS, Row, fitting, packed, rows, title
from syncline.train.console.snapshot import Phase, Snapshot

MAX_WIDTH = 100
"""Maximal width: short lines are easier to read, and wide ones break when the window shrinks."""
_RIGHT_MARGIN = 3
"""Free columns at the right, for the `^C` that terminals write at the cursor."""
_FRAMED_WIDTH = 56
_FRAMED_LINES = 8
_LABEL_WIDTH = 12
_LABELLED_WIDTH = 36
_BAR_WIDTH = 40
_SHORTEST_BAR = 8
_STYLES = {
    Phase.TRAINING: "green",
    Phase.FINISHED: "green",
    Phase.FAILED: "red",
    Phase.STOPPING: "red",
}
"""Colours of phases; yellow for the others, in which nothing is trained."""


def panel(snapshot: Snapshot, width: int, height: int) -> RenderableType:
    """Return the drawing for a screen of `width` by `height` characters, at most half as high."""
    width = max(1, min(width - _RIGHT_MARGIN, MAX_WIDTH))
    lines = max(1, height // 2)
    headline = _line(title(snapshot), _STYLES.get(snapshot.phase, "yellow"))
    if width >= _FRAMED_WIDTH and lines >= _FRAMED_LINES:
        body = _body(snapshot, width - 4, lines - 2)
        framed = Panel(
            Group(*body),
            title=headline,
            title_align="left",
            border_style="dim",
            width=width,
            padding=(0, 1),
        )
        return Constrain(framed, width)  # a long title would make it wider
    return Constrain(Group(headline, *_body(snapshot, width, lines - 1)), width)


def _body(snapshot: Snapshot, width: int, lines: int) -> list[RenderableType]:
    """Return the rows that fit into this number of lines."""
    label_width = _LABEL_WIDTH if width >= _LABELLED_WIDTH else 0
    shown = fitting(rows(snapshot), lines)
    spare = lines - len(shown)
    body: list[RenderableType] = []
    for row in shown:
        if row.label == PROGRESS and snapshot.progress is not None:
            body.append(_progress(row, snapshot.progress.share, label_width, width))
            continue
        texts = packed(row.parts, width - label_width, 1 + min(spare, row.lines - 1))
        spare -= len(texts) - 1
        for at, text in enumerate(texts):
            body.append(_labelled(row.label if at == 0 else "", text, label_width))
    return body


def _labelled(label: str, text: str, label_width: int) -> Text:
    made = _line("")
    made.append(label.ljust(label_width)[:label_width], "dim")
    return made.append(text)


def _progress(row: Row, share: float, label_width: int, width: int) -> RenderableType:
    """Return a row with a bar between label and text, if there is room."""
    text = ", ".join(row.parts)
    room = min(_BAR_WIDTH, width - label_width - len(text) - 1)
    if room < _SHORTEST_BAR:
        return _labelled(row.label, text, label_width)
    line = Table.grid()
    line.add_column(width=label_width)
    line.add_column(width=room)
    line.add_column(no_wrap=True)
    bar = ProgressBar(
        total=1.0, completed=share, width=room, complete_style="green", finished_style="green"
    )
    line.add_row(Text(row.label, "dim"), bar, Text(f" {text}"))
    return line


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")
