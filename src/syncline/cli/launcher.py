"""`up`, `down`, `exec`, `attach`, `rsync-up`, `rsync-down`: Ray's cluster launcher.

The arguments, flags included, and the terminal are passed on to Ray's command of the same name.
"""

from __future__ import annotations

from pathlib import Path

import click

from syncline.cli import ray_command


def _command(name: str, usage: str, text: str) -> click.Command:
    @click.command(
        name=name,
        help=f"{text}\n\nOther flags are those of `ray {name}`, which runs the command.",
        context_settings={"ignore_unknown_options": True},
        options_metavar="[FLAGS]",
    )
    @click.argument(
        "arguments", nargs=-1, type=click.UNPROCESSED, metavar=f"CLUSTER.yaml {usage}".strip()
    )
    @click.pass_context
    def run_launcher(context: click.Context, arguments: tuple[str, ...]) -> None:
        # Only Ray knows which flags take values, so the file is the first argument with its suffix.
        file = next(
            (argument for argument in arguments if argument.endswith((".yaml", ".yml"))), None
        )
        if file is None:
            raise click.UsageError("CLUSTER.yaml is missing: pass the file of the cluster")
        if "://" not in file and not Path(file).is_file():
            raise click.UsageError(
                f"{file!r} does not exist: pass the path of the YAML file of the cluster"
            )
        context.exit(ray_command.hand_over([name, *arguments]))

    return run_launcher


up_command = _command("up", "", "Create or update the cluster. -y answers all questions.")
down_command = _command("down", "", "Remove the cluster. -y answers all questions.")
exec_command = _command("exec", "COMMAND", "Run a shell command on the head node.")
attach_command = _command("attach", "", "Open a shell on the head node.")
rsync_up_command = _command(
    "rsync-up", "SOURCE TARGET", "Copy files to the head node, or with --all-nodes to every node."
)
rsync_down_command = _command("rsync-down", "SOURCE TARGET", "Copy files from the head node.")
