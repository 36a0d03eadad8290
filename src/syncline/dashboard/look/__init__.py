"""How the dashboard looks: frame, parts, charts and tables that every page is made of.

    with look.section("Workers", "One line for each rank."):
        table = look.DataTable([look.Column("rank", "Rank", number=True), look.Column("host",
        "Host")], row_key="rank")
    table.set([{"rank": 0, "host": "a"}])

All texts given to these are shown as they are: none is read as markup, and characters that would
break a page, or the direction of its text, are replaced (`text.printable`). Pages never use
`ui.html`, `ui.markdown` or slots with text that comes from a run, and never make a key of an option
from it: keys that begin with a colon are run as code by the browser. Everything that can be clicked
is a link or a button, so that it has its place in the order of the Tab key. CSS classes are those
of `style.css`: `sl-charts` (a grid of charts), `sl-bar` and `sl-actions` (rows of controls),
`sl-soft`, `sl-minor` (left out on small screens), and a few of Tailwind's names (`w-full`, `flex`,
`gap-2`, …); Tailwind itself is not loaded, since it holds up every page. Colours are variables,
which differ in light and dark: `var(--sl-ink)`, `--sl-soft`, `--sl-line`, `--sl-panel`,
`--sl-accent`, `--sl-good`, `--sl-bad`, `--sl-warn`.

Files: `text` (pure: texts, numbers, durations), `theme` (colours, frame of a page, navigation),
`parts` (sections, facts, badges, notes, actions), `charts` (lines), `bars` (shares), `tables`.
"""

from syncline.dashboard.look.bars import ShareBars
from syncline.dashboard.look.charts import Line, LineChart, Mark
from syncline.dashboard.look.parts import (
    Expandable,
    Fact,
    Mono,
    StateBadge,
    Text,
    action,
    facts,
    link,
    note,
    read_only_note,
    section,
)
from syncline.dashboard.look.tables import Column, DataTable
from syncline.dashboard.look.text import (
    ago,
    duration,
    moment,
    number,
    percent,
    plain_value,
    printable,
    size,
)
from syncline.dashboard.look.theme import frame

__all__ = [
    "Column",
    "DataTable",
    "Expandable",
    "Fact",
    "Line",
    "LineChart",
    "Mark",
    "Mono",
    "ShareBars",
    "StateBadge",
    "Text",
    "action",
    "ago",
    "duration",
    "facts",
    "frame",
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
]
