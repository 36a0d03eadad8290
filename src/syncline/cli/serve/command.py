"""The group `syncline serve`. A subcommand's module is imported when it is used."""

from __future__ import annotations

import click

from syncline.cli.lazy_commands import LazyCommands

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module, help text)
    "run": ("run", "Run an application or a configuration file until Ctrl-C."),
    "start": ("run", "Start serve in the background, without applications."),
    "deploy": ("deploy", "Run the applications of a configuration file in the serve that runs."),
    "status": ("status", "Show applications, deployments and replicas."),
    "config": ("deploy", "Print the configuration of the applications that run."),
    "build": ("deploy", "Write a configuration file for applications."),
    "shutdown": ("deploy", "Delete all applications and end serve."),
    "controller-health": ("status", "Show whether the controller answers, and how fast."),
}


@click.command(cls=LazyCommands, name="serve", package="syncline.cli.serve", table=COMMANDS)
def serve_command() -> None:
    """Serve models behind HTTP: run applications, deploy files, show and end them.

    On this machine, commands reach the program that runs serve; --address or SYNCLINE_ADDRESS
    chooses a cluster.
    """
