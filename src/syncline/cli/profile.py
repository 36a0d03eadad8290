"""`profile`: profile one rank of an active run; the file stays in the run directory."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from syncline.cli import find_runs
from syncline.cli.engines import address_option
from syncline.cli.find_runs import reached
from syncline.cli.output import CommandError, json_option, print_json
from syncline.runs import Run

OPENED_WITH = {
    "cpu": "open it in a browser",
    "memory": "open it in a browser",
    "torch": "open it at https://ui.perfetto.dev",
}


@click.command(name="profile")
@click.argument("run", required=False, shell_complete=find_runs.complete_run)
@click.option(
    "--rank",
    "--trial",
    "member",
    default="0",
    metavar="RANK",
    help="Rank to profile, default 0; for a search, a trial.",
)
@click.option(
    "--cpu", "kind", flag_value="cpu", help="Record a flame graph of CPU time with py-spy."
)
@click.option(
    "--memory",
    "kind",
    flag_value="memory",
    help="Record a flame graph of memory allocated during the profile with memray.",
)
@click.option(
    "--torch",
    "kind",
    flag_value="torch",
    help="Record a trace of its next steps, GPU included, with torch.profiler.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    help="Duration (10); for --torch, the time limit for the steps (120).",
)
@click.option(
    "--steps", type=click.IntRange(min=1), help="Number of optimizer steps for --torch (10)."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Copy the file there.")
@find_runs.storage_option
@address_option
@json_option
def profile_command(
    run: str | None,
    member: str,
    kind: str | None,
    seconds: float | None,
    steps: int | None,
    output: Path | None,
    storage_path: str | None,
    address: str | None,
    as_json: bool,
) -> None:
    """Profile a worker of RUN: a run's name, path or URI; default the latest run.

    The training continues. The file stays in the run directory, below profiles/.
    """
    if kind is None:
        raise click.UsageError("choose a kind of profile: --cpu, --memory or --torch")
    if steps is not None and kind != "torch":
        raise click.UsageError(f"--steps={steps} is for --torch: use --seconds with --{kind}")
    record = find_runs.open_run(run, find_runs.storage_directory(storage_path))
    with (
        reached(record, address) as live,
        Console(stderr=True).status(_progress_text(kind, seconds, steps)),
    ):
        file = live.profile(member, kind, seconds, steps)
    path = f"{record.path}/{file}" if output is None else _copied(record, file, output)
    if as_json:
        print_json({"run": record.name, "kind": kind, "file": file, "path": path})
    else:
        click.echo(path)
        click.echo(f"syncline: {OPENED_WITH[kind]}", err=True)


def _progress_text(kind: str, seconds: float | None, steps: int | None) -> str:
    if kind == "torch":
        return f"tracing {10 if steps is None else steps} steps …"
    return f"profiling for {10 if seconds is None else seconds:g} s …"


def _copied(run: Run, file: str, output: Path) -> str:
    """Copy the file to `output`, or into that directory; return the path of the copy."""
    target = output / Path(file).name if output.is_dir() else output
    if run.directory.file_info(file) is None:
        raise CommandError(
            f"{run.path}/{file} was recorded but is not accessible from here: it may be on a disk "
            "of another machine"
        )
    try:
        with target.open("wb") as copy:
            while data := run.directory.read_range(file, copy.tell()):
                copy.write(data)
    except OSError as error:
        raise CommandError(
            f"the profile is in {run.path}/{file} but could not be copied to {target}: {error}"
        ) from error
    return str(target)
