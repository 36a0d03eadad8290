"""Widgets of the dashboard: page frame, elements, charts and tables.

    with widgets.section("Workers", "One line per rank."):
        columns = [Column(name="rank", label="Rank"), Column(name="host", label="Host")]
        table = widgets.DataTable(columns, row_key="rank")
    table.set([{"rank": 0, "host": "a"}])

Widgets show any text literally: nothing is parsed as markup, and characters that would break a page
or change the direction of text are replaced (`formatting.printable`). Pages must not use `ui.html`,
`ui.markdown` or slots with text of a run, and must not use such text as an option key: the browser
runs the values of keys that begin with a colon as code. Clickable elements are links or buttons, so
that the Tab key reaches them. CSS classes are those of `style.css`: `sl-charts` (grid of charts),
`sl-bar` and `sl-actions` (rows of controls), `sl-soft`, `sl-minor` (hidden on small screens), and
some names of Tailwind (`w-full`, `flex`, `gap-2`, …), which itself is not loaded because it delays
every page. Colors are variables with values for light and dark mode: `var(--sl-ink)`, `--sl-soft`,
`--sl-line`, `--sl-panel`, `--sl-accent`, `--sl-good`, `--sl-bad`, `--sl-warn`.

Files: `elements` (page frame, sections, facts, badges, notes, actions), `charts` (lines, stacked
bars, timelines), `tables`. Texts, numbers and durations are formatted by `dashboard.formatting`.
"""

from syncline.dashboard.formatting import (
    ago,
    clock,
    duration,
    json_text,
    moment,
    number,
    percent,
    plain_value,
    printable,
    size,
)
from syncline.dashboard.widgets.charts import Line, LineChart, Mark, ShareBars, Span, Timeline
from syncline.dashboard.widgets.elements import (
    Expandable,
    Facts,
    Mono,
    ProgressBar,
    StateBadge,
    Text,
    action,
    button,
    choice,
    filter_field,
    frame,
    link,
    note,
    read_only_note,
    section,
    toggle,
)
from syncline.dashboard.widgets.tables import Column, DataTable, PagedTable

__all__ = [
    "Column",
    "DataTable",
    "Expandable",
    "Facts",
    "Line",
    "LineChart",
    "Mark",
    "Mono",
    "PagedTable",
    "ProgressBar",
    "ShareBars",
    "Span",
    "StateBadge",
    "Text",
    "Timeline",
    "action",
    "ago",
    "button",
    "choice",
    "clock",
    "duration",
    "filter_field",
    "frame",
    "json_text",
    "link",
    "moment",
    "note",
    "number",
    "percent",
    "plain_value",
    "printable",
    "read_only_note",
    "section",
    "size",
    "toggle",
]
