"""What workers print, followed as it comes and searched."""

from __future__ import annotations

from collections import deque

from nicegui import ui

from syncline.dashboard import look
from syncline.dashboard.pages.view import RunView, in_thread
from syncline.runs.directory import LOGS_DIRECTORY
from syncline.runs.follow import LogReader

INTERVAL_S = 1.0
TAIL_BYTES = 2_000_000
"""So much of the end of a log is read when it is opened; the whole file is there to be
downloaded.
"""
KEPT_LINES = 20_000
KEPT_CHARACTERS = 4_000_000
LONGEST_LINE = 5_000
SHOWN_LINES = 1_000
"""Of the lines that match, the last ones are shown."""
NOTHING = "Nothing has been printed."


class LogsPanel:
    """The log of one worker at a time."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._reader: LogReader | None = None
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._is_reading = False
        self._names: list[str] = []
        with look.section("Logs", anchor="logs") as self.section:
            with ui.element("div").classes("sl-bar"):
                self._member = ui.select([], label="Worker", on_change=self._open).props(
                    "dense outlined options-dense"
                )
                self._member.style("min-width: 9rem")
                self._filter = ui.input(
                    placeholder="Only lines with …", on_change=self._show
                ).props("dense outlined clearable debounce=300")
                self._filter.classes("sl-field").props["aria-label"] = (
                    "Show only lines that contain this"
                )
                self._follow = ui.switch("follow", value=True, on_change=self._show)
                self._downloads = ui.element("span")
            self._said = look.Text("p", NOTHING, "sl-soft")
            self._text = look.Mono(label="Log", tall=True)
            self._text.element.props["id"] = "sl-log"
        ui.timer(INTERVAL_S, self._read)

    def update(self) -> None:
        """Take workers in that have printed since."""
        logs = {file.member: file for file in self._view.run.logs}
        self.section.visible = bool(logs)
        if list(logs) != self._names:
            self._names = list(logs)
            value = self._member.value if self._member.value in logs else next(iter(logs), None)
            self._member.set_options(self._names, value=value)

    async def _open(self) -> None:
        member = self._member.value
        self._lines.clear()
        self._show()
        self._reader = (
            await in_thread(self._view.run.log, member, tail_bytes=TAIL_BYTES)
            if member in self._names
            else None
        )
        self._downloads.clear()
        with self._downloads:
            for part in next(
                (file.parts for file in self._view.run.logs if file.member == member), ()
            ):
                look.link(f"download {part}", self._view.url_of_file(f"{LOGS_DIRECTORY}/{part}"))
        await self._read()

    async def _read(self) -> None:
        reader = self._reader
        if reader is None or self._is_reading or not self._follow.value:
            return
        self._is_reading = True
        try:
            added = await in_thread(reader.lines)
        except (OSError, ValueError) as error:
            self._said.put(f"The log cannot be read: {error}")
            return
        finally:
            self._is_reading = False
        if reader is self._reader and added:
            self._keep(added)
            self._show()

    def _keep(self, added: list[str]) -> None:
        lines = [
            line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} …"
            for line in added[-KEPT_LINES:]
        ]
        self._lines.extend(lines)
        room = KEPT_CHARACTERS - sum(map(len, self._lines))
        while room < 0:
            room += len(self._lines.popleft())

    def _show(self) -> None:
        asked = str(self._filter.value or "").lower()
        matching = (
            [line for line in self._lines if asked in line.lower()] if asked else list(self._lines)
        )
        shown = matching[-SHOWN_LINES:]
        self._said.put(_counted(len(shown), len(matching), asked) if self._lines else NOTHING)
        self._text.set("\n".join(shown))
        self._text.element.visible = bool(shown)
        if self._follow.value:
            ui.run_javascript(
                "const log = document.getElementById('sl-log'); if (log) log.scrollTop = log.scrollHeight"
            )


def _counted(shown: int, matching: int, asked: str) -> str:
    which = f" with “{asked}”" if asked else ""
    if shown < matching:
        return f"The last {shown} of {matching} lines{which}."
    return f"{matching} line{'s'[: matching != 1]}{which}."
