"""Panels of the pages of runs: logs (followed and filtered), and actions on live workers (stack
traces of all, profiles of one).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from nicegui import ui

from syncline.dashboard import widgets
from syncline.dashboard.pages.run_header import NOT_REACHED
from syncline.dashboard.pages.run_view import RunView, in_thread
from syncline.dashboard.run_control import ActionFailed, LiveRun, ProgramUnreachable
from syncline.runs.outliers import members_text, readable, stack_groups
from syncline.runs.run_directory import LOGS_DIRECTORY, PROFILES_DIRECTORY
from syncline.runs.tailing import LogReader

INTERVAL_S = 1.0
TAIL_BYTES = 2_000_000
"""Bytes at the end of a log that are read when it is opened; the whole file can be downloaded."""
KEPT_LINES = 20_000
KEPT_CHARACTERS = 4_000_000
MAX_LINE_LENGTH = 5_000
SHOWN_LINES = 1_000
"""Maximum matching lines shown, the last ones."""
NOTHING = "No output yet."


class LogsPanel:
    """Log of one selected worker."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._reader: LogReader | None = None
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._is_reading = False
        self._names: list[str] = []
        with widgets.section("Logs", anchor="logs") as self.section:
            with ui.element("div").classes("sl-bar"):
                self._member = ui.select([], label="Worker", on_change=self._open).props(
                    "dense outlined options-dense"
                )
                self._member.style("min-width: 9rem")
                self._filter = ui.input(placeholder="Filter lines", on_change=self._show).props(
                    "dense outlined clearable debounce=300"
                )
                self._filter.classes("sl-field").props["aria-label"] = (
                    "Show only lines that contain this text"
                )
                self._poll = ui.switch("follow", value=True, on_change=self._show)
                self._downloads = ui.element("span")
            self._message = widgets.Text("p", NOTHING, "sl-soft")
            self._text = widgets.Mono(label="Log", tall=True)
            self._text.element.props["id"] = "sl-log"
        ui.timer(INTERVAL_S, self._read)

    def update(self) -> None:
        """Update the list of workers with output."""
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
                widgets.link(f"download {part}", self._view.url_of_file(f"{LOGS_DIRECTORY}/{part}"))
        await self._read()

    async def _read(self) -> None:
        reader = self._reader
        if reader is None or self._is_reading or not self._poll.value:
            return
        self._is_reading = True
        try:
            added = await in_thread(reader.lines)
        except (OSError, ValueError) as error:
            self._message.put(f"Cannot read the log: {error}")
            return
        finally:
            self._is_reading = False
        if reader is self._reader and added:
            self._keep(added)
            self._show()

    def _keep(self, added: list[str]) -> None:
        lines = [
            line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]} …"
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
        self._message.put(_count_text(len(shown), len(matching), asked) if self._lines else NOTHING)
        self._text.set("\n".join(shown))
        self._text.element.visible = bool(shown)
        if self._poll.value:
            ui.run_javascript(
                "const log = document.getElementById('sl-log'); "
                "if (log) log.scrollTop = log.scrollHeight"
            )


def _count_text(shown: int, matching: int, asked: str) -> str:
    which = f" containing “{asked}”" if asked else ""
    if shown < matching:
        return f"The last {shown} of {matching} lines{which}."
    return f"{matching} line{'s'[: matching != 1]}{which}."


MAX_PROFILE_S = 600
SECONDS = 10
"""Default duration of a profile."""
TRACE_WAITS_S = 60.0
"""Seconds for which a torch trace waits for its steps."""
SHOWN_PROFILES = 50
KINDS = {"cpu": "CPU flame graph", "memory": "Memory profile", "torch": "Torch trace"}
HINTS = {
    "cpu": "py-spy samples where the worker spends its time",
    "memory": "memray records the allocations of the worker",
    "torch": "torch.profiler records the next optimizer steps; open the trace at ui.perfetto.dev",
}


class ActionsPanel:
    """Buttons of the actions, their results, and the recorded profiles.

    Args:
        view: The run.
        who: Word for a member: "rank" or "trial".
        names: Returns the running members.
        kinds: Kinds of profiles.
    """

    def __init__(
        self,
        view: RunView,
        *,
        who: str,
        names: Callable[[], Sequence[str]],
        kinds: Sequence[str] = tuple(KINDS),
    ) -> None:
        self._view = view
        self._who = who
        self._names = names
        self._shown: list[str] = []
        self._profiles: list[str] = []
        with widgets.section(
            "Inspect workers", "The run is not interrupted.", anchor="inside"
        ) as self.section:
            widgets.read_only_note(view.may_act)
            with ui.element("div").classes("sl-actions") as self._stack_bar:
                widgets.action(
                    f"Stack traces of all {who}s",
                    self._take_stacks,
                    view.may_act,
                    hint="Show what each one is executing now",
                )
            with ui.element("div").classes("sl-actions") as self._profile_bar:
                self._member = _chosen(ui.select([], label=who.capitalize()))
                self._seconds = _number("Seconds", SECONDS, MAX_PROFILE_S)
                self._buttons = {
                    kind: widgets.action(
                        KINDS[kind], partial(self._record, kind), view.may_act, hint=HINTS[kind]
                    )
                    for kind in kinds
                }
                if "torch" in kinds:
                    self._steps = _number("Trace steps", 5, 1000)
            self._message = widgets.note("")
            self._message.props["role"] = "status"
            self._message.visible = False
            self._found = ui.element("div").classes("sl-stacks")
            self._files = ui.element("div").classes("sl-files")

    def update(self) -> None:
        """Update the running members and the profiles."""
        run = self._view.run
        running = run.state == "running"
        profiles = run.names_in(PROFILES_DIRECTORY)
        self.section.visible = running or bool(profiles)
        self._stack_bar.visible = self._profile_bar.visible = running
        names = list(self._names()) if running else []
        if names != self._shown:
            self._shown = names
            value = (
                self._member.value if self._member.value in names else (names[0] if names else None)
            )
            self._member.set_options(names, value=value)
        self._show_files(profiles)

    def _show_files(self, profiles: Sequence[str]) -> None:
        if list(profiles) == self._profiles:
            return
        self._profiles = list(profiles)
        self._files.clear()
        with self._files:
            widgets.Text("h3", "Profiles")
            for name in sorted(self._profiles, reverse=True)[:SHOWN_PROFILES]:
                widgets.link(
                    name, self._view.url_of_file(f"{PROFILES_DIRECTORY}/{name}"), new_tab=True
                )

    async def _take_stacks(self) -> None:
        self._show_message("Collecting stack traces …")
        stacks = await self._ask(lambda live: live.stacks())
        if stacks is not None:
            self._show_message("")
            self._show_stacks(stacks)

    async def _record(self, kind: str) -> None:
        member = self._member.value
        if member is None:
            self._show_message("Nothing is running.", "warning")
            return
        seconds = TRACE_WAITS_S if kind == "torch" else float(self._seconds.value or SECONDS)
        steps = int(self._steps.value or 1) if kind == "torch" else None
        self._show_message(f"Recording {KINDS[kind]} of {self._who} {member}: {HINTS[kind]} …")
        self._set_enabled(False)  # a worker records one profile at a time
        try:
            name = await self._ask(
                lambda live: live.profile(
                    int(member) if member.isdecimal() else member, kind, seconds, steps
                )
            )
        finally:
            self._set_enabled(True)
        if name is not None:
            file = str(name).rpartition("/")[2]
            self._show_message(f"Recorded {file}.")
            self._show_files([*{*self._profiles, file}])

    def _set_enabled(self, is_enabled: bool) -> None:
        for button in self._buttons.values():
            button.set_enabled(is_enabled)

    async def _ask(self, question: Callable[[LiveRun], object]) -> object | None:
        """Return the answer; on failure show the error and return None."""

        def ask() -> object:
            live = self._view.live()
            if live is None:
                raise ProgramUnreachable(NOT_REACHED)
            return question(live)

        try:
            return await in_thread(ask)
        except (ActionFailed, ProgramUnreachable) as error:
            self._show_message(str(error), "error")
            return None

    def _show_stacks(self, stacks: object) -> None:
        self._found.clear()
        found: Mapping[str, str] = stacks if isinstance(stacks, dict) else {}
        with self._found:
            for group in stack_groups(found):
                odd = " · outlier" if group.is_outlier else ""
                waits = " · waiting for others" if group.waits else ""
                with ui.element("div").classes("sl-outlier" if group.is_outlier else "sl-stack"):
                    widgets.Text("h3", f"{members_text(group.members)}{odd}{waits}")
                    widgets.Mono(
                        readable(group.stack), label=f"Stack of {members_text(group.members)}"
                    )

    def _show_message(self, text: str, kind: str = "info") -> None:
        self._message.classes(replace=f"sl-note sl-note-{kind}")
        self._message.show(text)


def _chosen(field: ui.select) -> ui.select:
    made: ui.select = field.props("dense outlined options-dense").style("min-width: 7rem")
    return made


def _number(label: str, value: int, largest: int) -> ui.number:
    made: ui.number = (
        ui.number(label, value=value, min=1, max=largest, format="%d")
        .props("dense outlined")
        .style("width: 8.5rem")
    )
    return made
