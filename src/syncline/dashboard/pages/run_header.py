"""Head of a run's page: name, state, tags, note; buttons to stop, archive and delete the run."""

from __future__ import annotations

from functools import partial

from nicegui import ui

from syncline.dashboard import widgets
from syncline.dashboard.pages import run_actions
from syncline.dashboard.pages.run_view import OpenRun, RunView, in_thread
from syncline.dashboard.run_control import ActionFailed, ProgramUnreachable
from syncline.dashboard.run_index import RunIndex
from syncline.runs.annotations import MAX_NOTE_CHARACTERS, MAX_TAG_CHARACTERS, Annotations, annotate
from syncline.runs.verdicts import current_verdict

STALL_HELP = "Press “Stack traces of all ranks” below to see where."
NOT_REACHED = (
    "The program of this run is not reachable: it has ended, or belongs to another machine or user."
)


class RunHeader:
    """Head of the page for one visitor."""

    def __init__(self, opened: OpenRun, view: RunView, run_index: RunIndex) -> None:
        self._opened = opened
        self._view = view
        self._run_index = run_index
        self._shown: Annotations | None = None
        run, may_act = opened.run, view.may_act
        with ui.element("div").classes("sl-title-row"):
            widgets.Text("h1", widgets.printable(run.name, 300), "sl-title")
            self._state = widgets.StateBadge()
            widgets.Text("span", widgets.printable(run.kind, 40), "sl-soft")
            self._tags = ui.element("span").classes("sl-tags")
            ui.element("div").classes("sl-grow")
            with ui.element("div").classes("sl-actions"):
                self._stop = widgets.action("Stop …", self._stop_run, may_act)
                self._edit = widgets.action("Edit tags and note", self._open_editor, may_act)
                self._archive = widgets.action("Archive", self._archive_run, may_act)
                self._delete = widgets.action("Delete …", self._delete_run, may_act)
        widgets.Text("p", widgets.printable(run.path, 1_000), "sl-soft sl-path")
        self._note = widgets.Text("p", "", "sl-lines")
        self._stall = widgets.note("", "warning")
        self._message = widgets.note("")
        self._stall.visible = self._message.visible = False

    def update(self) -> None:
        """Show the current state."""
        summary = self._opened.summary
        running = summary.state == "running"
        self._state.set(widgets.printable(summary.state, 40))
        self._stop.visible = running and summary.kind not in ("data", "serve", "rl")
        self._delete.visible = not running
        if not running:
            self._message.visible = False
        stalled = summary.stalled_since is not None
        verdict = current_verdict(self._opened.run.events) if running else None
        said = STALL_HELP if verdict is None else verdict.text
        said = f"Ranks are {summary.cause}. {said}" if stalled else said
        self._stall.show(said if stalled or verdict is not None else "")
        found = Annotations(tags=tuple(summary.tags), note=summary.note, archived=summary.archived)
        if found != self._shown:
            self._show(found)

    def _show(self, found: Annotations) -> None:
        self._shown = found
        self._note.show(found.note)
        self._archive.text = "Bring back" if found.archived else "Archive"
        self._tags.clear()
        with self._tags:
            for tag in found.tags:
                widgets.Text("span", tag, "sl-tag")
            if found.archived:
                widgets.Text("span", "archived", "sl-tag")

    # -- actions

    async def _stop_run(self) -> None:
        if not await run_actions.confirm_stop(self._opened.run.name):
            return

        def stop() -> None:
            live = self._view.live()
            if live is None:
                raise ProgramUnreachable(NOT_REACHED)
            live.stop()

        try:
            await in_thread(stop)
        except (ActionFailed, ProgramUnreachable) as error:
            ui.notify(widgets.printable(error, 500), type="negative", multi_line=True)
            return
        self._message.show("The run is asked to stop.")

    async def _archive_run(self) -> None:
        await run_actions.archive(self._run_index, [self._key], not self._opened.summary.archived)
        await self._read_again()

    async def _delete_run(self) -> None:
        if await run_actions.delete(self._run_index, [self._key]):
            ui.navigate.to("/")

    def _open_editor(self) -> None:
        found = self._shown or Annotations()
        with ui.dialog() as dialog, ui.element("div").classes("sl-section sl-dialog"):
            tags = ui.input("Tags, separated by commas", value=", ".join(found.tags))
            tags.props(f"outlined dense maxlength={50 * MAX_TAG_CHARACTERS}").classes("w-full")
            note = ui.textarea("Note", value=found.note)
            note.props(f"outlined autogrow maxlength={MAX_NOTE_CHARACTERS}").classes("w-full")
            with ui.element("div").classes("sl-actions"):
                widgets.action("Save", partial(self._save, dialog, tags, note), True)
                widgets.button("Cancel", dialog.close, flat=True)
        dialog.props["aria-label"] = "Tags and note"
        dialog.on("hide", dialog.delete)
        dialog.open()

    async def _save(self, dialog: ui.dialog, tags: ui.input, note: ui.textarea) -> None:
        wanted = [tag.strip() for tag in str(tags.value or "").split(",") if tag.strip()]
        removed = [tag for tag in (self._shown or Annotations()).tags if tag not in wanted]
        try:
            await in_thread(
                annotate,
                self._opened.run.directory,
                add_tags=wanted,
                remove_tags=removed,
                note=str(note.value or ""),
            )
        except (ValueError, OSError) as error:
            ui.notify(widgets.printable(error, 500), type="negative", multi_line=True)
            return
        dialog.close()
        await in_thread(self._run_index.changed, self._key)
        await self._read_again()

    async def _read_again(self) -> None:
        async with self._opened.lock:
            summary = await in_thread(lambda: self._opened.run.summary)
            self._opened.summary = summary
            self.update()

    @property
    def _key(self) -> tuple[int, str]:
        return self._view.storage, self._view.directory
