"""The group `syncline rl`. A subcommand's module is imported when it is used."""

from __future__ import annotations

import click

from syncline.cli.lazy_commands import LazyCommands

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module, help text)
    "train": ("train", "Train an algorithm on an environment, or an experiment in a file."),
    "evaluate": ("evaluate", "Play episodes with a checkpoint; --render writes a video."),
    "list": ("listing", "List the algorithms."),
    "example": ("example", "List, print and run examples, one for each customization."),
}


@click.command(cls=LazyCommands, name="rl", package="syncline.cli.rl", table=COMMANDS)
def rl_command() -> None:
    """Train and evaluate agents.

    A training is a run: `syncline runs` lists it, `syncline dashboard` shows it.
    """
