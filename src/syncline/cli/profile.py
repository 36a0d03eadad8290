"""`profile`: a profile of one rank of a run that goes on, recorded in its worker and kept in the
run directory.
"""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from syncline.cli import records
from syncline.cli.engines import address_option
from syncline.cli.live_runs import reached
from syncline.cli.output import CommandError, json_option, print_json
from syncline.runs import Run

OPENED_WITH = {
    "cpu": "open it in a browser",
    "memory": "open it in a browser",
    "torch": "open it at https://ui.perfetto.dev",
}


@click.command(name="profile")
@click.argument("run", required=False)
@click.option(
    "--rank",
    "--trial",
    "member",
    default="0",
    metavar="RANK",
    help="Whose: a rank, 0 by default; of a search, a trial.",
)
@click.option(
    "--cpu", "kind", flag_value="cpu", help="Where it uses the CPU: py-spy's flame graph."
)
@click.option(
    "--memory",
    "kind",
    flag_value="memory",
    help="What it holds in memory of what it asks for meanwhile: memray's flame graph.",
)
@click.option(
    "--torch",
    "kind",
    flag_value="torch",
    help="What its next steps do: a trace by torch.profiler, GPU included.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    help="How long to look (10); for --torch, how long to wait for the steps (120).",
)
@click.option(
    "--steps", type=click.IntRange(min=1), help="For --torch: so many steps of the optimizer (10)."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Copy the file there, too.")
@click.option("--storage-path", help="Where runs are kept: a directory or a URI.")
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
    """Record a profile of a worker of RUN, a run's name, path or URI; by default the latest run.
    The training goes on meanwhile.

    The file is kept in the run directory, below profiles/.
    """
    if kind is None:
        raise click.UsageError("say what to record: --cpu, --memory or --torch")
    if steps is not None and kind != "torch":
        raise click.UsageError(f"--steps={steps} is for --torch: --{kind} looks for --seconds")
    record = records.open_run(run, records.place(storage_path))
    with (
        reached(record, address) as live,
        Console(stderr=True).status(_meanwhile(kind, seconds, steps)),
    ):
        file = live.profile(member, kind, seconds, steps)
    path = f"{record.path}/{file}" if output is None else _copied(record, file, output)
    if as_json:
        print_json({"run": record.name, "kind": kind, "file": file, "path": path})
    else:
        click.echo(path)
        click.echo(f"syncline: {OPENED_WITH[kind]}", err=True)


def _meanwhile(kind: str, seconds: float | None, steps: int | None) -> str:
    if kind == "torch":
        return f"tracing {10 if steps is None else steps} steps …"
    return f"looking for {10 if seconds is None else seconds:g} s …"


def _copied(run: Run, file: str, output: Path) -> str:
    """The file at `output`, or under its own name in that directory."""
    target = output / Path(file).name if output.is_dir() else output
    if run.directory.file_info(file) is None:
        raise CommandError(
            f"{run.path}/{file} was recorded, but cannot be seen from here: it may lie on a disk of another machine"
        )
    try:
        with target.open("wb") as copy:
            while data := run.directory.read_range(file, copy.tell()):
                copy.write(data)
    except OSError as error:
        raise CommandError(
            f"the profile is in {run.path}/{file}, but could not be copied to {target}: {error}"
        ) from error
    return str(target)
