"""`up`, `down`, `exec`, `attach`, `rsync-up`, `rsync-down`: clusters that a YAML file describes, by
Ray's cluster launcher.

The command line goes to Ray's command of the same name as it is, flags included; so does the
terminal, for questions and shells.
"""

from __future__ import annotations

from pathlib import Path

import click

from syncline.cli import ray_command


def _command(name: str, usage: str, text: str) -> click.Command:
    @click.command(
        name=name,
        help=f"{text}\n\nFurther flags are those of `ray {name}`, to which all is handed over.",
        context_settings={"ignore_unknown_options": True},
        options_metavar="[FLAGS]",
    )
    @click.argument(
        "arguments", nargs=-1, type=click.UNPROCESSED, metavar=f"CLUSTER.yaml {usage}".strip()
    )
    @click.pass_context
    def handed_over(context: click.Context, arguments: tuple[str, ...]) -> None:
        # Flags may take values, which Ray knows: the file is therefore the first argument that is
        # named like one.
        file = next(
            (argument for argument in arguments if argument.endswith((".yaml", ".yml"))), None
        )
        if file is None:
            raise click.UsageError("name the CLUSTER.yaml that describes the cluster")
        if "://" not in file and not Path(file).is_file():
            raise click.UsageError(
                f"there is no file {file!r}: give the path of the YAML file that describes the cluster"
            )
        context.exit(ray_command.hand_over([name, *arguments]))

    return handed_over


up_command = _command(
    "up", "", "Create the cluster, or bring it to what the file says. -y asks no questions."
)
down_command = _command("down", "", "Take the cluster down. -y asks no questions.")
exec_command = _command("exec", "COMMAND", "Run a shell command on the head node.")
attach_command = _command("attach", "", "Open a shell on the head node.")
rsync_up_command = _command(
    "rsync-up",
    "SOURCE TARGET",
    "Copy files from here to the head node, with --all-nodes to every node.",
)
rsync_down_command = _command("rsync-down", "SOURCE TARGET", "Copy files from the head node here.")
