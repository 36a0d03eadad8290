"""The command line as a whole: what it lists, what it loads, what it says to nonsense."""

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from syncline import cli
from syncline.cli import app
from syncline.cli.doctor.checks import Check
from syncline.cli.microbenchmark import Measurement
from syncline.dashboard.engine_snapshots import Node
from syncline.job_submission.details import Job
from syncline.runs import RunSummary


def run_python(program: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_help_lists_every_command_with_what_it_does(syncline_command):
    done = syncline_command("--help")
    assert done.exit_code == 0
    for name, (section, _, text) in app.COMMANDS.items():
        assert f"{section}:" in done.output
        assert f"  {name} " in done.output
        assert text.split()[0] in done.output


@pytest.mark.parametrize("name", list(app.COMMANDS))
def test_every_command_explains_itself(syncline_command, name):
    done = syncline_command(name, "--help")
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"Usage: syncline {name} ")


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command below one, by its full name."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for below in command.list_commands(context):
        found = command.get_command(context, below)
        assert found is not None
        yield from leaves(found, f"{name} {below}".strip())


def test_every_command_has_json_but_those_that_hand_over_or_pass_text_on():
    without = {
        name
        for name, command in leaves(app.cli, "")
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == {
        "start",
        "stop",
        "run",
        "warm",
        "up",
        "down",
        "exec",
        "attach",
        "rsync-up",
        "rsync-down",
        "jobs logs",
        "dashboard",
        "serve run",
        "serve start",
        "serve build",
        "rl train",
        "rl example get",
        "rl example run",
    }


def test_every_command_is_in_the_docs_with_the_keys_of_its_json():
    page = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
    assert [name for name, _ in leaves(app.cli, "") if f"`{name}" not in page] == []
    for record in (Node, RunSummary, Job, Check, Measurement):
        assert [
            field.name for field in dataclasses.fields(record) if f"`{field.name}`" not in page
        ] == [], record


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("runs", "--nonsense"), ("logs", "--rank=-1"), ("submit",)]
)
def test_what_cannot_be_understood_ends_with_2(syncline_command, arguments):
    assert syncline_command(*arguments).exit_code == 2


@pytest.mark.processes
def test_help_loads_no_heavy_library():
    names = ("rich", "ray", "torch", "numpy", "pyarrow", "syncline.train")
    program = (
        "import sys; from syncline.cli import main; sys.argv[1:] = ['--help']; code = main();"
        f"print([name for name in {names} if name in sys.modules], code)"
    )
    assert run_python(program).stdout.splitlines()[-1] == "[] 0"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "code"), [("--version", 0), ("nonsense", 2), ("runs nonsense nonsense", 2)]
)
def test_module_runs_the_command_line_and_passes_its_code_on(arguments, code):
    done = subprocess.run(
        [sys.executable, "-m", "syncline", *arguments.split()],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code
    assert done.stdout.startswith("syncline ") if code == 0 else "Usage: syncline" in done.stderr


def test_without_click_the_remedy_is_named(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main() == 1
    assert 'pip install "syncline[cli]"' in capsys.readouterr().err
