"""The group `syncline serve`. A subcommand's module is imported when it is used."""

from __future__ import annotations

import importlib

import click

from syncline.suggestions import did_you_mean

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


class LazyCommands(click.Group):
    """A group that imports each subcommand on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"syncline.cli.serve.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_") + "_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and args[0][:1] != "-" and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}.{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=LazyCommands, name="serve")
def serve_command() -> None:
    """Serve models behind HTTP: run applications, deploy files, show and end them.

    On this machine, commands reach the program that runs serve; --address or SYNCLINE_ADDRESS
    chooses a cluster.
    """
