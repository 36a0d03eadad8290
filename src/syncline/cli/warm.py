"""`warm`: keep a process that has imported torch, from which `syncline run` starts jobs."""

from __future__ import annotations

import click

from syncline import settings
from syncline.cli.output import CommandError
from syncline.launcher import warm

IDLE_S = 1800.0


@click.command(name="warm")
@click.option(
    "--idle-s",
    type=click.FloatRange(min=1),
    default=IDLE_S,
    show_default=True,
    metavar="SECONDS",
    help="End after so long without a job.",
)
@click.option("--stop", is_flag=True, help="End the templates of this user; jobs continue.")
def warm_command(idle_s: float, stop: bool) -> None:
    """Start a process that has imported torch, so that `syncline run` begins in half a second.

    It is used by jobs with the same interpreter, packages, limits and relevant variables. Set
    OMP_NUM_THREADS for another number of threads per worker than 1.
    """
    if stop:
        count = warm.stop()
        click.echo(f"{count} template{'s'[: count != 1]} stopped")
        return
    variables = settings.inherited_environment()
    variables.setdefault("OMP_NUM_THREADS", "1")
    try:
        seconds = warm.start(variables, idle_s)
    except (OSError, RuntimeError) as error:
        raise CommandError(str(error)) from error
    click.echo(
        f"ready after {seconds:.1f} s; ends after {idle_s:g} s without a job"
        if seconds
        else "ready already"
    )
