"""Logs of the workers, merged by time or single, with filters over whole files and pages."""

from __future__ import annotations

import time
from collections.abc import Sequence

from nicegui import ui

from syncline.dashboard import widgets
from syncline.dashboard.pages.run_view import RunView, in_thread
from syncline.runs.log_index import LogIndex, LogLine
from syncline.runs.run_directory import LOGS_DIRECTORY

INTERVAL_S = 1.0
PAGE_LINES = 1_000
PAGE_CHARACTERS = 180_000
"""Characters of a page; long lines are cut further if there are more."""
LEAST_CHARACTERS = 160
"""Characters of a line that always are shown."""
MAX_DOWNLOADS = 8
ALL = ""
NOTHING = "No output yet."
TO_END = """
const log = document.getElementById('sl-log'); if (log) log.scrollTop = log.scrollHeight
"""


class LogsPanel:
    """Viewer of the logs of a run."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._index: LogIndex | None = None
        self._asked: tuple[str, str] | None = None
        self._page: int | None = None  # None: the last one
        self._is_reading = False
        self._names: list[str] = []
        self._drawn: object = None
        with widgets.section("Logs", anchor="logs") as self.section:
            with ui.element("div").classes("sl-bar"):
                self._member = ui.select({}, label="Worker", on_change=self._open).props(
                    "dense outlined options-dense"
                )
                self._member.style("min-width: 9rem")
                self._filter = ui.input(placeholder="Filter lines", on_change=self._open).props(
                    "dense outlined clearable debounce=300"
                )
                self._filter.classes("sl-field").props["aria-label"] = (
                    "Show only lines that contain this text"
                )
                self._follow = ui.switch("follow", value=True, on_change=self._followed)
                self._times = ui.switch("times", value=False, on_change=self._open)
                self._downloads = ui.element("span").classes("sl-actions")
            with ui.element("div").classes("sl-actions"):
                self._message = widgets.Text("span", NOTHING, "sl-soft")
                self._message.props["role"] = "status"
                self._earlier = widgets.button("Earlier", lambda: self._turn(-1), flat=True)
                self._later = widgets.button("Later", lambda: self._turn(1), flat=True)
            self._earlier.visible = self._later.visible = False
            self._text = widgets.Mono(label="Log", tall=True)
            self._text.element.props["id"] = "sl-log"
        ui.timer(INTERVAL_S, self._read)

    def update(self) -> None:
        """Update the list of workers with output."""
        names = [file.member for file in self._view.run.logs]
        self.section.visible = bool(names)
        if names != self._names:
            self._names = names
            options = {ALL: "all ranks"} if len(names) > 1 else {}
            options |= {name: widgets.printable(name, 100) for name in names}
            value = (
                self._member.value if self._member.value in options else next(iter(options), None)
            )
            self._member.set_options(options, value=value)

    async def _open(self) -> None:
        self._page = None
        self._link_downloads()
        await self._read(again=True)

    async def _followed(self) -> None:
        if self._follow.value:
            self._page = None
            await self._read(again=True)

    async def _turn(self, pages: int) -> None:
        """Show an earlier or a later page, which ends following."""
        last = self._last_page
        page = min(last, max(0, (last if self._page is None else self._page) + pages))
        self._page = page
        self._follow.value = False
        await self._read(again=True)

    @property
    def _last_page(self) -> int:
        return max(0, (self._index.matching if self._index is not None else 0) - 1) // PAGE_LINES

    def _link_downloads(self) -> None:
        self._downloads.clear()
        member = self._member.value
        logs = [file for file in self._view.run.logs if member in (ALL, file.member)]
        with self._downloads:
            for part in [part for file in logs for part in file.parts][:MAX_DOWNLOADS]:
                widgets.link(f"download {part}", self._view.url_of_file(f"{LOGS_DIRECTORY}/{part}"))

    async def _read(self, *, again: bool = False) -> None:
        """Read new output and show the page; unless `again`, only while following."""
        if self._is_reading or not self._names or not (again or self._follow.value):
            return
        self._is_reading = True
        try:
            while True:
                asked = (str(self._member.value or ALL), str(self._filter.value or ""))
                if asked != self._asked or self._index is None:
                    self._asked = asked
                    self._index = LogIndex(self._view.run.directory, asked[1])
                drawn = (asked, self._page, bool(self._times.value))
                found = await in_thread(self._found, self._index, asked[0], drawn != self._drawn)
                now = (str(self._member.value or ALL), str(self._filter.value or ""))
                if (now, self._page, bool(self._times.value)) == drawn:
                    break  # nothing else was chosen meanwhile
        except (OSError, ValueError) as error:
            self._message.put(f"Cannot read the log: {error}")
            return
        finally:
            self._is_reading = False
        if found is not None and not self._text.element.is_deleted:
            self._drawn = drawn
            self._show(found)

    def _found(self, index: LogIndex, member: str, again: bool) -> list[LogLine] | None:
        """Read new output; return the lines of the page, None if nothing changed."""
        run = self._view.run
        logs = [file for file in run.logs if member in (ALL, file.member)]
        if not index.read(logs, ended=run.state != "running") and not again:
            return None
        page = self._page
        first = max(0, index.matching - PAGE_LINES) if page is None else page * PAGE_LINES
        return index.page(first, PAGE_LINES)

    def _show(self, lines: Sequence[LogLine]) -> None:
        index, page = self._index, self._page
        assert index is not None
        first = max(0, index.matching - PAGE_LINES) if page is None else page * PAGE_LINES
        self._message.put(
            count_text(
                index.total, index.matching, first, len(lines), str(self._filter.value or "")
            )
            + (
                f" {index.left_out_bytes} bytes before are left out."
                if index.left_out_bytes
                else ""
            )
        )
        is_long = index.matching > PAGE_LINES
        self._earlier.visible = self._later.visible = is_long
        self._earlier.set_enabled(first > 0)
        self._later.set_enabled(first + len(lines) < index.matching)
        with_member = self._member.value == ALL
        self._text.set(page_text(lines, members=with_member, times=bool(self._times.value)))
        self._text.element.visible = bool(lines)
        if page is None:
            ui.run_javascript(TO_END)


def page_text(lines: Sequence[LogLine], *, members: bool, times: bool) -> str:
    """Return the lines as text, with time and worker before each if requested."""
    longest = max(LEAST_CHARACTERS, PAGE_CHARACTERS // max(1, len(lines)))
    shown = []
    for line in lines:
        cut = max(0, len(line.text) - longest) + line.more
        moment = _time_text(line.time) if times else ""
        member = f"[{line.member.replace('rank-', 'rank ')}] " if members else ""
        rest = f" … {cut} more characters" if cut else ""
        shown.append(f"{moment}{member}{line.text[:longest]}{rest}")
    return "\n".join(shown)


def count_text(total: int, matching: int, first: int, shown: int, asked: str) -> str:
    """Return the counts of all lines, of the matching ones, and of the ones on the page."""
    if not total:
        return NOTHING
    text = f"{widgets.number(total)} line{'s'[: total != 1]}"
    if asked:
        text += f", {widgets.number(matching)} containing “{widgets.printable(asked, 100)}”"
    if shown < matching:
        text += f"; {widgets.number(first + 1)} to {widgets.number(first + shown)} are shown"
    return f"{text}."


def _time_text(moment: float | None) -> str:
    if moment is None:
        return ""
    hundredths = int(moment * 100) % 100
    try:
        return f"{time.strftime('%H:%M:%S', time.localtime(moment))}.{hundredths:02d} "
    except (ValueError, OverflowError, OSError):
        return ""
