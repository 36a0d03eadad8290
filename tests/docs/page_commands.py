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
    if isinstance(command, click.Group):
        found = command.get_command(click.Context(command), arguments[0])
        assert found is not None, f"{name} {arguments[0]} is no command"
        parse(arguments[1:], found, arguments[0])
    else:
        command.make_context(name, list(arguments))
