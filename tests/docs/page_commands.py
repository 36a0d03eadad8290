"""Commands of the documentation: found in blocks for a shell, and parsed as if they were to run."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from syncline.cli import app


def commands(text: str) -> list[list[str]]:
    """The arguments of `syncline` in shell lines, without prompts, variables before them and what
    else stands on the line.
    """
    found = []
    for line in text.splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True) if "syncline " in line else []
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words and Path(words[0]).name == "syncline":
            found.append(words[1:])
    return found


def parse(
    arguments: Sequence[str], command: click.Command = app.cli, name: str = "syncline"
) -> None:
    """Parse as if it were to run. click.UsageError where it cannot be understood."""
    context = command.make_context(name, list(arguments))
    if isinstance(command, click.Group):
        # A group may have added its default command.
        rest = [*context._protected_args, *context.args]
        found_name, found, rest = command.resolve_command(context, rest)
        assert found is not None, f"{name} {rest} is no command"
        parse(rest, found, found_name or name)
