"""Ray's own command line: finding it and handing over to it. Its output and its exit codes are
Ray's.

It is run as a program, never imported: whatever it does to its process ends with that process.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from syncline import settings
from syncline.cli.output import CommandError

_COLOURS = re.compile("\x1b\\[[0-9;]*m")
MISSING = (
    'clusters run on Ray, which is not installed here ({python}): run `pip install "syncline[cluster]"`, with the same version on every '
    "node. On one machine syncline needs no cluster: programs start their workers themselves."
)


def command(python: str | None = None) -> list[str]:
    """How `ray` is called: the executable beside this Python, or its module where there is none.

    Raises:
        CommandError: Ray is not installed for this Python.
    """
    beside = Path(python or sys.executable).with_name("ray")
    if beside.is_file():
        return [str(beside)]
    if importlib.util.find_spec("ray") is None:
        raise CommandError(MISSING.format(python=python or sys.executable))
    return [python or sys.executable, "-m", "ray.scripts.scripts"]


def environment() -> dict[str, str]:
    """What Ray's processes inherit: all that we have.

    Its usage reports to its makers stay off unless the user turned them on. `python` in a submitted
    command is the one that runs the cluster, also where its virtual environment was not activated.
    """
    inherited = {"RAY_USAGE_STATS_ENABLED": "0", **settings.inherited_environment()}
    beside, path = os.path.dirname(sys.executable), inherited.get("PATH", os.defpath)
    if beside not in path.split(os.pathsep):
        inherited["PATH"] = os.pathsep.join((beside, path))
    return inherited


def hand_over(arguments: Sequence[str]) -> int:
    """Run Ray's command on our terminal; its exit code."""
    try:
        return subprocess.run([*command(), *arguments], env=environment(), check=False).returncode
    except KeyboardInterrupt:
        return 130


def quietly(arguments: Sequence[str]) -> tuple[int, str]:
    """(exit code, output) of Ray's command."""
    # Not a pipe: the processes that `ray start` leaves behind may hold it open for as long as they
    # live.
    with tempfile.TemporaryFile() as file:
        done = subprocess.run(
            [*command(), *arguments],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
        file.seek(0)
        return done.returncode, _COLOURS.sub("", file.read().decode(errors="replace"))


def tail(output: str, lines: int = 40) -> str:
    """The last lines of Ray's output, set in, to be quoted in an error."""
    return "\n".join(f"  {line}" for line in output.strip().splitlines()[-lines:])
