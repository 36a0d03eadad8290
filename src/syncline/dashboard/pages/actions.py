"""Looking into live workers: where all of them stand, and profiles of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from nicegui import ui

from syncline.dashboard import look
from syncline.dashboard.live import ActionFailed, LiveRun, NobodyAnswers
from syncline.dashboard.odd_ones import members_text, readable, standings
from syncline.dashboard.pages.view import RunView, in_thread
from syncline.runs.directory import PROFILES_DIRECTORY

LONGEST_S = 600
SECONDS = 10
"""So long one looks, if nothing else is asked for."""
TRACE_WAITS_S = 60.0
"""How long a trace waits for its steps."""
SHOWN_PROFILES = 50
KINDS = {"cpu": "CPU flame graph", "memory": "Memory profile", "torch": "Torch trace"}
HINTS = {
    "cpu": "py-spy looks where the worker spends its time",
    "memory": "memray follows what the worker allocates",
    "torch": "torch.profiler records the next optimizer steps; the trace is downloaded, and opens at ui.perfetto.dev",
}
NOT_REACHED = "The run's program cannot be reached: it has ended, or it is another machine's or another user's."


class ActionsPanel:
    """Buttons, what they found, and the profiles that were recorded.

    Args:
        view: The run.
        who: What a member is called: "rank", or "trial".
        names: Those that run now.
        kinds: The profiles that can be recorded of one.
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
        with look.section(
            "Look inside", "Of the processes that run now; the run goes on.", anchor="inside"
        ) as self.section:
            look.read_only_note(view.may_act)
            with ui.element("div").classes("sl-actions") as self._stack_bar:
                look.action(
                    f"Stack traces of all {who}s",
                    self._take_stacks,
                    view.may_act,
                    hint="where each one is at this moment",
                )
            with ui.element("div").classes("sl-actions") as self._profile_bar:
                self._member = _chosen(ui.select([], label=who.capitalize()))
                self._seconds = _number("Seconds", SECONDS, LONGEST_S)
                self._buttons = {
                    kind: look.action(
                        KINDS[kind], partial(self._record, kind), view.may_act, hint=HINTS[kind]
                    )
                    for kind in kinds
                }
                if "torch" in kinds:
                    self._steps = _number("Steps of a trace", 5, 1000)
            self._said = look.note("")
            self._said.props["role"] = "status"
            self._said.visible = False
            self._found = ui.element("div").classes("sl-stacks")
            self._files = ui.element("div").classes("sl-files")

    def update(self) -> None:
        """Show the members that run, and the profiles that are there."""
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
            look.Text("h3", "Profiles")
            for name in sorted(self._profiles, reverse=True)[:SHOWN_PROFILES]:
                look.link(
                    name, self._view.url_of_file(f"{PROFILES_DIRECTORY}/{name}"), new_tab=True
                )

    async def _take_stacks(self) -> None:
        self._say("Asking all of them …")
        stacks = await self._ask(lambda live: live.stacks())
        if stacks is not None:
            self._say("")
            self._show_stacks(stacks)

    async def _record(self, kind: str) -> None:
        member = self._member.value
        if member is None:
            self._say("Nothing runs at this moment.", "warning")
            return
        seconds = TRACE_WAITS_S if kind == "torch" else float(self._seconds.value or SECONDS)
        steps = int(self._steps.value or 1) if kind == "torch" else None
        self._say(f"Recording {KINDS[kind]} of {self._who} {member}: {HINTS[kind]} …")
        self._set_enabled(False)  # of one worker, a second one at the same time is an error
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
            self._say(f"Recorded {file}.")
            self._show_files([*{*self._profiles, file}])

    def _set_enabled(self, is_enabled: bool) -> None:
        for button in self._buttons.values():
            button.set_enabled(is_enabled)

    async def _ask(self, question: Callable[[LiveRun], object]) -> object | None:
        """The answer; None after having said why there is none."""

        def ask() -> object:
            live = self._view.live()
            if live is None:
                raise NobodyAnswers(NOT_REACHED)
            return question(live)

        try:
            return await in_thread(ask)
        except (ActionFailed, NobodyAnswers) as error:
            self._say(str(error), "error")
            return None

    def _show_stacks(self, stacks: object) -> None:
        self._found.clear()
        found: Mapping[str, str] = stacks if isinstance(stacks, dict) else {}
        with self._found:
            for standing in standings(found):
                odd = " · the odd one out" if standing.is_odd else ""
                waits = " · waits for the others" if standing.waits else ""
                with ui.element("div").classes("sl-odd" if standing.is_odd else "sl-stack"):
                    look.Text("h3", f"{members_text(standing.members)}{odd}{waits}")
                    look.Mono(
                        readable(standing.stack), label=f"Stack of {members_text(standing.members)}"
                    )

    def _say(self, text: str, kind: str = "info") -> None:
        self._said.put(text)
        self._said.classes(replace=f"sl-note sl-note-{kind}")
        self._said.visible = bool(text)


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
