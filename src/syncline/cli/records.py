"""Where commands find runs: `syncline.runs` with its errors as those of a command."""

from __future__ import annotations

from syncline import runs
from syncline.cli.output import CommandError
from syncline.runs import Run, RunSummary, finding, places
from syncline.runs.finding import NoSuchRunError
from syncline.runs.places import Place


def place(path: str | None) -> Place:
    """The storage path of the command line, or else of the environment. CommandError for a URI that
    pyarrow does not know.
    """
    try:
        return places.place(path)
    except ValueError as error:
        raise CommandError(str(error)) from error


def runs_below(storage: Place) -> list[RunSummary]:
    """Every run in a directory, the latest first. CommandError if it cannot be listed."""
    try:
        return finding.runs_below(storage)
    except OSError as error:
        raise _unreadable(storage, error) from error


def find_run(name: str | None, storage: Place) -> Place:
    """The run of that name below `storage`, or at that path or URI; without a name, the latest.
    CommandError if there is none.
    """
    try:
        return finding.find_run(name, storage)
    except NoSuchRunError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise _unreadable(storage, error) from error


def open_run(name: str | None, storage: Place) -> Run:
    """The same, read. CommandError if there is none, or it cannot be read."""
    found = find_run(name, storage)
    try:
        return runs.open(found)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error


def _unreadable(storage: Place, error: OSError) -> CommandError:
    return CommandError(
        f"{storage.path} cannot be read ({error}): correct its permissions, or give another storage path"
    )
