"""Subcommands of `runs` that change runs: `rm`, `stop`, `note`, `tag` and `archive`."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from syncline import runs
from syncline.cli import find_runs
from syncline.cli.engines import address_option
from syncline.cli.output import CommandError, ago, json_option, print_json, warn
from syncline.launcher.run_deletion import delete_run
from syncline.runs import run_list
from syncline.runs.annotations import Annotations, annotate, read_annotations
from syncline.runs.run_storage import StorageDirectory

PAUSE_S = 0.2
"""Seconds between two reads of the record of a run that ends."""

_one_run = click.argument("run", shell_complete=find_runs.complete_run)
_many_runs = click.argument(
    "names", metavar="RUN...", nargs=-1, required=True, shell_complete=find_runs.complete_run
)


@click.command(name="rm")
@_many_runs
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Delete runs of other machines without an outcome.")
@find_runs.storage_option
@json_option
def rm_command(
    names: tuple[str, ...], yes: bool, force: bool, storage_path: str | None, as_json: bool
) -> None:
    """Delete runs: their records, logs and checkpoints. A run must have ended."""
    places = _find(names, storage_path)
    for place in places:
        _check_ended(place, force=force)
    if not yes:
        if not may_ask():
            raise CommandError("nothing was deleted without a confirmation: pass --yes")
        listed = "\n".join(f"  {place.path}" for place in places)
        click.confirm(f"Delete with all checkpoints?\n{listed}\n", abort=True, err=True)
    for place in places:
        _changed(place, delete_run)
        if not as_json:
            click.echo(f"Deleted {place.path}")
    if as_json:
        print_json({"deleted": [place.path for place in places]})


@click.command(name="stop")
@_many_runs
@click.option(
    "--limit", type=float, default=60.0, show_default=True, help="Seconds to wait for the end."
)
@find_runs.storage_option
@address_option
@json_option
def stop_command(
    names: tuple[str, ...],
    limit: float,
    storage_path: str | None,
    address: str | None,
    as_json: bool,
) -> None:
    """Stop running trainings and searches, as Ctrl-C in their programs does.

    Checkpoints are kept: run the program again with the same name to continue.
    """
    places = _find(names, storage_path)
    for place in places:
        if run_list.summarize_run(place).state != "running":
            continue
        with find_runs.reached(runs.open(place), address) as live:
            live.stop()
    deadline = time.monotonic() + limit
    states = {}
    for place in places:
        while (state := run_list.summarize_run(place).state) == "running":
            if time.monotonic() >= deadline:
                raise CommandError(
                    f"{place.path} was asked to stop but still runs after {limit:g} s: `syncline "
                    f"stack {place.name}` shows what it does"
                )
            time.sleep(PAUSE_S)
        states[place.path] = state
        if not as_json:
            click.echo(f"{place.path} is {state}")
    if as_json:
        print_json({"stopped": states})


@click.command(name="note")
@_one_run
@click.argument("text", required=False)
@find_runs.storage_option
@json_option
def note_command(run: str, text: str | None, storage_path: str | None, as_json: bool) -> None:
    """Print the note of RUN, or replace it by TEXT; an empty TEXT removes it."""
    (place,) = _find((run,), storage_path)
    if text is None:
        found = _changed(place, read_annotations)
    else:
        found = _changed(place, lambda place: annotate(place, note=text))
    if as_json:
        print_json({"run": place.path, "note": found.note})
    elif text is None and found.note:
        click.echo(found.note)
    elif text is None:
        warn(f"{place.path} has no note: syncline runs note {place.name} TEXT")


@click.command(name="tag")
@_one_run
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@click.option("-d", "--delete", "deleted", metavar="TAG", multiple=True, help="Remove this tag.")
@find_runs.storage_option
@json_option
def tag_command(
    run: str,
    tags: tuple[str, ...],
    deleted: tuple[str, ...],
    storage_path: str | None,
    as_json: bool,
) -> None:
    """Add tags to RUN, and print its tags."""
    (place,) = _find((run,), storage_path)
    found: Annotations = _changed(
        place, lambda place: annotate(place, add_tags=tags, remove_tags=deleted)
    )
    if as_json:
        print_json({"run": place.path, "tags": list(found.tags)})
    elif found.tags:
        click.echo(" ".join(found.tags))
    else:
        warn(f"{place.path} has no tags")


@click.command(name="archive")
@_many_runs
@click.option("--undo", is_flag=True, help="List the runs again.")
@find_runs.storage_option
@json_option
def archive_command(
    names: tuple[str, ...], undo: bool, storage_path: str | None, as_json: bool
) -> None:
    """Leave runs out of lists; `syncline runs --all` lists them. Their files are kept."""
    places = _find(names, storage_path)
    for place in places:
        _changed(place, lambda place: annotate(place, archived=not undo))
    if as_json:
        print_json({"archived": not undo, "runs": [place.path for place in places]})


COMMANDS = (rm_command, stop_command, note_command, tag_command, archive_command)


def may_ask() -> bool:
    """Return True if a person can answer a question."""
    return sys.stdin.isatty()


def _find(names: tuple[str, ...], storage_path: str | None) -> list[StorageDirectory]:
    """Return the directories of all runs before any of them is changed, each once."""
    storage = find_runs.storage_directory(storage_path)
    return [find_runs.find_run(name, storage) for name in dict.fromkeys(names)]


def _check_ended(place: StorageDirectory, *, force: bool) -> None:
    run = run_list.summarize_run(place)
    if run.state != "running":
        return
    if run.host == socket.gethostname():
        raise CommandError(
            f"{place.path} is running, so nothing was deleted: stop it with `syncline runs stop "
            f"{place.name}` first"
        )
    if not force:
        raise CommandError(
            f"{place.path} was started on {run.host}, last wrote {ago(run.last_activity)} ago and "
            "has no outcome, so nothing was deleted. Pass --force if its program has ended"
        )


def _changed(place: StorageDirectory, change: Callable[[StorageDirectory], object]) -> Any:
    try:
        return change(place)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error
