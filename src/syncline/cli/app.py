"""Table of the commands: name, help text and module. A module is imported when its command runs."""

from __future__ import annotations

import importlib

import click

import syncline
from syncline.suggestions import did_you_mean

COMMANDS: dict[str, tuple[str, str, str]] = {
    # name: (section, module, help text)
    "start": (
        "Cluster",
        "start",
        "Start a cluster on this machine (--head), or join one (--address).",
    ),
    "stop": ("Cluster", "start", "Stop the cluster processes on this machine."),
    "status": (
        "Cluster",
        "status",
        "Show nodes, resources in use, local programs, and the latest runs.",
    ),
    "nodes": ("Cluster", "status", "List the nodes of the cluster and their resources."),
    "doctor": (
        "Cluster",
        "doctor.command",
        "Check this machine, or every node, and print remedies.",
    ),
    "microbenchmark": (
        "Cluster",
        "microbenchmark",
        "Measure tasks, actor calls and objects per second.",
    ),
    "runs": ("Runs", "runs", "List runs; tag, note, stop and delete them."),
    "dashboard": ("Runs", "dashboard", "Show runs in a browser, active and finished."),
    "logs": ("Runs", "logs", "Print the output of a run's workers."),
    "debug": ("Runs", "debug", "Attach to a worker that waits at a breakpoint()."),
    "stack": ("Runs", "stack", "Print the Python stack of each rank; mark outliers."),
    "profile": ("Runs", "profile", "Profile a rank: CPU time, memory, or its next steps."),
    "serve": ("Serving", "serve.command", "Serve models: run, deploy, inspect, shut down."),
    "rl": (
        "Reinforcement learning",
        "rl.command",
        "Train and evaluate agents; list algorithms; run examples.",
    ),
    "run": ("Programs", "run", "Run a script in several processes, with torchrun's options."),
    "warm": ("Programs", "warm", "Keep torch imported, so that `run` starts in half a second."),
    "migrate": (
        "Programs",
        "migrate",
        "Convert programs written for Ray: print the diff, or --write it.",
    ),
    "submit": ("Jobs", "submit", "Run a program on the cluster: submit -- python script.py."),
    "jobs": ("Jobs", "jobs", "List, follow and stop submitted programs."),
    "up": ("Launcher", "launcher", "Create or update the cluster in a YAML file."),
    "down": ("Launcher", "launcher", "Remove that cluster."),
    "exec": ("Launcher", "launcher", "Run a shell command on its head node."),
    "attach": ("Launcher", "launcher", "Open a shell on its head node."),
    "rsync-up": ("Launcher", "launcher", "Copy files to it."),
    "rsync-down": ("Launcher", "launcher", "Copy files from it."),
}


class LazyCommands(click.Group):
    """A group that imports each command on first use; listing the commands imports nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"syncline.cli.{COMMANDS[cmd_name][1]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_") + "_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and args[0][:1] != "-" and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}.{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in dict.fromkeys(section for section, _, _ in COMMANDS.values()):
            with formatter.section(section):
                formatter.write_dl(
                    [
                        (name, text)
                        for name, (where, _, text) in COMMANDS.items()
                        if where == section
                    ]
                )


@click.command(
    cls=LazyCommands,
    name="syncline",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 failure or a problem was found, 2 invalid command line.",
)
@click.version_option(syncline.__version__, prog_name="syncline", message="%(prog)s %(version)s")
def cli() -> None:
    """Train and serve PyTorch models on one machine or many.

    Commands that read accept --json. SYNCLINE_ADDRESS and SYNCLINE_STORAGE_PATH are the defaults of
    --address and the storage path.
    """


def run() -> int:
    """Run the command line of this process and return its exit code."""
    try:
        result = cli.main(prog_name="syncline", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo(err=True)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        return 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return result if isinstance(result, int) else 0
