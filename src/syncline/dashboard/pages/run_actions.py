"""Changes of runs that pages offer: archive, delete, tags and note, stop. Buttons call them through
`widgets.action`, so that only visitors with the token can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nicegui import ui

from syncline.dashboard import widgets
from syncline.dashboard.pages.run_view import in_thread
from syncline.dashboard.run_index import RunIndex
from syncline.dashboard.run_query import Key
from syncline.launcher.run_deletion import delete_run
from syncline.runs.annotations import annotate
from syncline.runs.run_list import summarize_run
from syncline.runs.run_storage import StorageDirectory

SHOWN_NAMES = 10
"""Runs that a question names."""


async def archive(run_index: RunIndex, keys: Sequence[Key], archived: bool) -> None:
    """Archive runs or bring them back; show what fails."""
    await _each(run_index, keys, lambda place: annotate(place, archived=archived))


async def delete(run_index: RunIndex, keys: Sequence[Key]) -> bool:
    """Ask, then delete runs; show what fails. Return True if the visitor agreed."""
    names = "\n".join(widgets.printable(name, 100) for _, name in keys[:SHOWN_NAMES])
    more = f"\n… and {len(keys) - SHOWN_NAMES} more" if len(keys) > SHOWN_NAMES else ""
    what = "this run" if len(keys) == 1 else f"these {len(keys)} runs"
    question = f"Delete {what} with all checkpoints and logs? This cannot be undone."
    if not await _agreed(question, f"{names}{more}", "Delete"):
        return False
    await _each(run_index, keys, delete_ended_run)
    return True


async def confirm_stop(name: str) -> bool:
    """Return True if the visitor wants to stop a run."""
    question = (
        "Stop this run? It ends as with Ctrl-C in its program; its checkpoints are kept, and a "
        "rerun with the same name resumes it."
    )
    return await _agreed(question, widgets.printable(name, 200), "Stop")


def delete_ended_run(place: StorageDirectory) -> None:
    """Delete a run that does not run.

    Raises:
        ValueError: The run is running, or the directory holds no run.
        OSError: Something cannot be deleted.
    """
    summary = summarize_run(place)
    if summary.state == "running":
        raise ValueError(
            f"The run is running, as far as its record says ({summary.host or 'unknown host'}): "
            "stop it first."
        )
    delete_run(place)


async def _each(
    run_index: RunIndex, keys: Sequence[Key], change: Callable[[StorageDirectory], object]
) -> None:
    for key in keys:
        try:
            await in_thread(change, run_index.run_directory(*key))
        except (ValueError, LookupError, OSError) as error:
            said = f"{widgets.printable(key[1], 200)}: {widgets.printable(error, 500)}"
            ui.notify(said, type="negative", multi_line=True)
        try:
            await in_thread(run_index.changed, key)
        except (ValueError, LookupError, OSError):  # it is gone
            continue


async def _agreed(question: str, details: str, label: str) -> bool:
    """Ask in a dialog; return True if the visitor agrees."""
    with ui.dialog() as dialog, ui.element("div").classes("sl-section sl-dialog"):
        widgets.Text("p", question)
        widgets.Text("p", details, "sl-soft sl-lines")
        with ui.element("div").classes("sl-actions"):
            widgets.button(label, lambda: dialog.submit(True))
            widgets.button("Cancel", lambda: dialog.submit(False), flat=True)
    dialog.props["aria-label"] = question
    try:
        return bool(await dialog)
    finally:
        dialog.delete()
