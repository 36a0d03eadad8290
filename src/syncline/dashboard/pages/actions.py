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

SECONDS = {"cpu": 10.0, "memory": 10.0, "torch": 60.0}
"""How long each kind looks; of a trace, how long it waits for its steps."""
KINDS = {"cpu": "CPU flame graph", "memory": "Memory profile", "torch": "Torch trace"}
HINTS = {
    "cpu": "py-spy looks for 10 s where the worker spends its time",
    "memory": "memray follows for 10 s what the worker allocates",
    "torch": "torch.profiler records the next steps; the trace opens in Perfetto",
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

    def __init__(self, view: RunView, *, who: str, names: Callable[[], Sequence[str]], kinds: Sequence[str] = tuple(KINDS)) -> None:
        self._view = view
        self._names = names
        self._shown: list[str] = []
        self._profiles: list[str] = []
        with look.section("Look inside", "Of the processes that run now; the run goes on.", anchor="inside") as self._section:
            look.read_only_note(view.may_act)
            with ui.element("div").classes("sl-actions") as self._buttons:
                look.action(f"Stack traces of all {who}s", self._take_stacks, view.may_act, hint="where each one is at this moment")
                self._member = ui.select([], label=who.capitalize()).props("dense outlined options-dense").style("min-width: 7rem")
                for kind in kinds:
                    look.action(KINDS[kind], partial(self._record, kind), view.may_act, hint=HINTS[kind])
                if "torch" in kinds:
                    self._steps = ui.number("Steps of a trace", value=5, min=1, max=1000, format="%d").props("dense outlined")
                    self._steps.style("width: 9rem")
            self._said = look.note("")
            self._said.visible = False
            self._found = ui.element("div").classes("sl-stacks")
            self._files = ui.element("div").classes("sl-run")

    def update(self) -> None:
        """Show the members that run, and the profiles that are there."""
        run = self._view.run
        running = run.state == "running"
        profiles = run.names_in(PROFILES_DIRECTORY)
        self._section.visible = running or bool(profiles)
        self._buttons.visible = running
        names = list(self._names()) if running else []
        if names != self._shown:
            self._shown = names
            value = self._member.value if self._member.value in names else (names[0] if names else None)
            self._member.set_options(names, value=value)
        if profiles != self._profiles:
            self._profiles = list(profiles)
            self._files.clear()
            with self._files:
                look.Text("h3", "Profiles", "sl-soft")
                for name in reversed(self._profiles):
                    look.link(name, self._view.url_of_file(f"{PROFILES_DIRECTORY}/{name}"), new_tab=True)

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
        steps = int(self._steps.value or 5) if kind == "torch" else None
        self._say(f"Recording: {HINTS[kind]} …")
        name = await self._ask(lambda live: live.profile(int(member) if member.isdecimal() else member, kind, SECONDS[kind], steps))
        if name is not None:
            self._say(f"Recorded {name}.")

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
                    look.Mono(readable(standing.stack), label=f"Stack of {members_text(standing.members)}")

    def _say(self, text: str, kind: str = "info") -> None:
        self._said.put(text)
        self._said.classes(replace=f"sl-note sl-note-{kind}")
        self._said.visible = bool(text)
