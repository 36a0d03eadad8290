"""The commands: their names, one line on each, and where their modules are, which load when the
command runs.
"""

from __future__ import annotations

import importlib

import click

import syncline

COMMANDS: dict[str, tuple[str, str, str]] = {
    # name: (section, module, what it does)
    "start": (
        "Cluster",
        "start",
        "Start a cluster on this machine (--head), or join one (--address).",
    ),
    "stop": ("Cluster", "start", "Stop every process of the cluster on this machine."),
    "status": (
        "Cluster",
        "status",
        "Nodes, resources in use, programs of this machine, and the latest runs.",
    ),
    "nodes": ("Cluster", "status", "The nodes of the cluster and what each one has."),
    "doctor": (
        "Cluster",
        "doctor.command",
        "Examine this machine, or every node: each line is ok or has its remedy.",
    ),
    "microbenchmark": (
        "Cluster",
        "microbenchmark",
        "Measure tasks, actor calls and objects per second.",
    ),
    "runs": ("Runs", "runs", "The runs below a storage path."),
    "dashboard": ("Runs", "dashboard", "Show runs in a browser, live and finished."),
    "logs": ("Runs", "logs", "What the workers of a run printed."),
    "stack": ("Runs", "stack", "Where the ranks of a run stand, the odd one out marked."),
    "profile": ("Runs", "profile", "Record a rank's CPU time, memory, or next steps."),
    "migrate": (
        "Programs",
        "migrate",
        "Rewrite programs for Ray: show what would change, or --write it.",
    ),
    "submit": ("Jobs", "submit", "Run a program on the cluster: submit -- python script.py."),
    "jobs": ("Jobs", "jobs", "List, follow and stop submitted programs."),
    "up": ("Launcher", "launcher", "Create or update the cluster that a YAML file describes."),
    "down": ("Launcher", "launcher", "Take it down."),
    "exec": ("Launcher", "launcher", "Run a shell command on its head node."),
    "attach": ("Launcher", "launcher", "Open a shell on its head node."),
    "rsync-up": ("Launcher", "launcher", "Copy files to it."),
    "rsync-down": ("Launcher", "launcher", "Copy files from it."),
}


class LazyCommands(click.Group):
    """The group whose commands are imported when they are asked for; the list of them needs
    none.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"syncline.cli.{COMMANDS[cmd_name][1]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_") + "_command")
        return command

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
    epilog="Exit codes: 0 well, 1 failed or something is wrong, 2 the command line cannot be understood.",
)
@click.version_option(syncline.__version__, prog_name="syncline", message="%(prog)s %(version)s")
def cli() -> None:
    """Train PyTorch models on one machine or many.

    Reading commands take --json. SYNCLINE_ADDRESS and SYNCLINE_STORAGE_PATH stand for --address and
    the storage path.
    """


def run() -> int:
    """Run the command line of this process and return its exit code."""
    try:
        result = cli.main(prog_name="syncline", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo(err=True)
        return 130
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        return 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return result if isinstance(result, int) else 0
