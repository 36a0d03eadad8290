"""Actions on live workers: stack traces of all, profiles of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from nicegui import ui

from syncline.dashboard import widgets
from syncline.dashboard.pages.run_header import NOT_REACHED
from syncline.dashboard.pages.run_view import RunView, in_thread
from syncline.dashboard.run_control import ActionFailed, LiveRun, ProgramUnreachable
from syncline.runs.outliers import members_text, readable, stack_groups
from syncline.runs.run_directory import PROFILES_DIRECTORY

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
        what = "training" if who == "rank" else "the search"
        title = f"Inspect workers ({what} is not interrupted)"
        with widgets.section(title, anchor="inside") as self.section:
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
