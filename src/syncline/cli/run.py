"""`run`: run a script in several processes, as torchrun does; the command line is the launcher's.

`syncline.cli.main` calls the launcher directly, so that a job does not wait for the import of the
other commands' libraries. This command lists it among them.
"""

from __future__ import annotations

import click

from syncline.launcher import launch


@click.command(
    name="run",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    options_metavar="[OPTIONS]",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT|-m MODULE [ARGS]...")
@click.pass_context
def run_command(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Run a script in several processes, with torchrun's options."""
    context.exit(launch.main(arguments))
