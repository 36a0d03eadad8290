"""Ray's own command line, run as a subprocess with its own output and exit code."""

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
    "Clusters run on Ray, which is not installed for {python}: run "
    '`pip install "syncline[cluster]"`, with the same version on every node. One machine needs no '
    "cluster: programs start their own workers."
)


def command(python: str | None = None) -> list[str]:
    """Return the command line of `ray`: the executable next to this Python, or its module.

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
    """Return the environment for processes of Ray itself: that of this process, with two changes.

    Usage reports are off unless the user enabled them, and `python` in a submitted command is the
    one that runs the cluster, even if its virtual environment is not active.
    """
    inherited = {"RAY_USAGE_STATS_ENABLED": "0", **settings.environment_for_ray()}
    beside, path = os.path.dirname(sys.executable), inherited.get("PATH", os.defpath)
    if beside not in path.split(os.pathsep):
        inherited["PATH"] = os.pathsep.join((beside, path))
    return inherited


def hand_over(arguments: Sequence[str]) -> int:
    """Run Ray's command in this terminal; return its exit code."""
    try:
        return subprocess.run([*command(), *arguments], env=environment(), check=False).returncode
    except KeyboardInterrupt:
        return 130


def quietly(arguments: Sequence[str]) -> tuple[int, str]:
    """Run Ray's command without a terminal; return (exit code, output)."""
    # Not a pipe: processes that `ray start` leaves behind may hold it open for their lifetime.
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
    """Return the last lines of Ray's output, indented, for an error."""
    return "\n".join(f"  {line}" for line in output.strip().splitlines()[-lines:])
