"""`rl example`: lists, prints and runs the programs in `examples/rl`."""

from __future__ import annotations

import ast
import subprocess
import sys
import sysconfig
from pathlib import Path

import click

import syncline
from syncline.cli.output import CommandError, console, json_option, print_json, table
from syncline.suggestions import did_you_mean

_INSTALLED = Path("share", "syncline", "examples", "rl")
"""Place of the examples below the prefix of an installation."""


def examples_directory() -> Path:
    """Return the directory of the examples: of the checkout, or of the installation.

    Raises:
        CommandError: There is none.
    """
    checkout = Path(syncline.__file__).resolve().parents[2] / "examples" / "rl"
    installed = Path(sysconfig.get_path("data")) / _INSTALLED
    for place in (checkout, installed):
        if place.is_dir():
            return place
    raise CommandError(
        f"The examples are not installed: neither {checkout} nor {installed} exists."
    )


def example_path(name: str) -> Path:
    """Return the file of an example.

    Raises:
        CommandError: There is none of that name; the message has the nearest one.
    """
    known = _examples()
    name = name.removesuffix(".py").replace("-", "_")
    if name not in known:
        raise CommandError(
            f"There is no example {name!r}.{did_you_mean(name, known)} Examples: "
            f"{', '.join(known)}."
        )
    return known[name]


def _examples() -> dict[str, Path]:
    return {file.stem: file for file in sorted(examples_directory().glob("*.py"))}


def description(file: Path) -> str:
    """Return the first sentence of an example's docstring."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


@click.group(name="example")
def example_command() -> None:
    """List, print and run examples: one short program for each customization."""


@example_command.command(name="list")
@json_option
def list_command(as_json: bool) -> None:
    """List the examples, with a sentence each."""
    found = {name: description(file) for name, file in _examples().items()}
    if as_json:
        print_json({"examples": found})
        return
    rows = list(found.items())
    console().print(table(("example", "what it shows"), rows, folding=("what it shows",)))


@example_command.command(name="get")
@click.argument("name")
def get_command(name: str) -> None:
    """Print the program NAME, to start your own from: `rl example get custom_env > mine.py`."""
    click.echo(example_path(name).read_text(encoding="utf-8"), nl=False)


@example_command.command(name="run")
@click.argument("name")
def run_command(name: str) -> None:
    """Run the program NAME."""
    code = subprocess.run([sys.executable, str(example_path(name))], check=False).returncode
    if code:
        raise click.exceptions.Exit(code)
