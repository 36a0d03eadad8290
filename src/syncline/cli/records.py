"""Where commands find runs: `syncline.runs` with its errors as those of a command."""

from __future__ import annotations

from syncline import runs
from syncline.cli.output import CommandError
from syncline.runs import Run, RunSummary, run_list, run_storage
from syncline.runs.run_list import RunNotFoundError
from syncline.runs.run_storage import StorageDirectory


def place(path: str | None) -> StorageDirectory:
    """The storage path of the command line, or else of the environment. CommandError for a URI that
    pyarrow does not know.
    """
    try:
        return run_storage.open_directory(path)
    except ValueError as error:
        raise CommandError(str(error)) from error


def list_runs(storage: StorageDirectory) -> list[RunSummary]:
    """Every run in a directory, the latest first. CommandError if it cannot be listed."""
    try:
        return run_list.list_runs(storage)
    except OSError as error:
        raise _unreadable(storage, error) from error


def find_run(name: str | None, storage: StorageDirectory) -> StorageDirectory:
    """The run of that name below `storage`, or at that path or URI; without a name, the latest.
    CommandError if there is none.
    """
    try:
        return run_list.find_run(name, storage)
    except RunNotFoundError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise _unreadable(storage, error) from error


def open_run(name: str | None, storage: StorageDirectory) -> Run:
    """The same, read. CommandError if there is none, or it cannot be read."""
    found = find_run(name, storage)
    try:
        return runs.open(found)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error


def _unreadable(storage: StorageDirectory, error: OSError) -> CommandError:
    return CommandError(
        f"{storage.path} cannot be read ({error}): correct its permissions, or give another storage path"
    )
