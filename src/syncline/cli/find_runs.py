"""Runs for commands: `syncline.runs` and the active programs, with errors of a command."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click
from click.shell_completion import CompletionItem

from syncline import runs
from syncline.cli import engines
from syncline.cli.output import CommandError
from syncline.dashboard.run_control import ActionFailed, LiveRun, ProgramUnreachable, reach
from syncline.runs import Run, RunSummary, run_list, run_storage
from syncline.runs.run_list import RunNotFoundError
from syncline.runs.run_storage import StorageDirectory

storage_option = click.option("--storage-path", help="Parent directory or URI of the runs.")


def complete_run(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the names of runs that begin with `incomplete`, the latest first, for the shell."""
    try:
        storage = run_storage.open_directory(ctx.params.get("storage_path"))
        names = [name for name, _ in run_list.list_run_names(storage)]
    except (OSError, ValueError):
        names = []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def storage_directory(path: str | None) -> StorageDirectory:
    """Return the storage path of the command line, or of the environment.

    Raises:
        CommandError: pyarrow does not support the URI.
    """
    try:
        return run_storage.open_directory(path)
    except ValueError as error:
        raise CommandError(str(error)) from error


def list_runs(storage: StorageDirectory) -> list[RunSummary]:
    """Return every run in a directory, latest first. Raises CommandError if it is unreadable."""
    try:
        return run_list.list_runs(storage)
    except OSError as error:
        raise _unreadable(storage, error) from error


def find_run(name: str | None, storage: StorageDirectory) -> StorageDirectory:
    """Return the run with that name below `storage`, or at that path or URI; None: the latest.

    Raises:
        CommandError: There is no such run.
    """
    try:
        return run_list.find_run(name, storage)
    except RunNotFoundError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise _unreadable(storage, error) from error


def open_run(name: str | None, storage: StorageDirectory) -> Run:
    """Find a run like `find_run`, and read it. Raises CommandError if that fails."""
    found = find_run(name, storage)
    try:
        return runs.open(found)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error


def _unreadable(storage: StorageDirectory, error: OSError) -> CommandError:
    return CommandError(
        f"{storage.path} cannot be read ({error}): correct its permissions, or choose another "
        "storage path"
    )


@contextmanager
def reached(run: Run, address: str | None) -> Iterator[LiveRun]:
    """Connect to an active run: on this machine, at `address`, or on the local cluster.

    Raises:
        CommandError: The run is not active or cannot be reached, or its program answers with an
            error inside the block.
    """
    if run.state != "running":
        raise CommandError(
            f"{run.path} is {run.state}: only an active run can be inspected. `syncline logs` "
            "prints its output"
        )
    with ExitStack() as stack:
        live = reach(run)
        if live is None:
            address = engines.chosen_address(address)
            if stack.enter_context(engines.cluster_if_any(address)):
                live = reach(run)
        if live is None:
            raise CommandError(_not_found(run, address))
        try:
            yield live
        except (ActionFailed, ProgramUnreachable) as error:
            raise CommandError(str(error)) from error


def _not_found(run: Run, address: str | None) -> str:
    host, pid = run.environment.get("hostname"), run.environment.get("pid")
    if address is not None:
        return (
            f"{run.path} does not run on the cluster at {address}, and no program of this user on "
            "this machine owns it"
        )
    if run.kind == "data":
        return f"{run.path} is the record of a dataset: it has no workers to inspect"
    if host != socket.gethostname():
        return (
            f"no program on this machine owns {run.path}: it was started on {host}. Run this "
            "command there, or pass --address if it trains on a cluster"
        )
    return (
        f"no program answers for {run.path}, which process {pid} of this machine started: it "
        "is starting or ending, belongs to another user, uses another SYNCLINE_TMPDIR, or "
        "trains on a cluster (pass --address)"
    )
