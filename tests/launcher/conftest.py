"""Programs for both launchers, `syncline run` and torchrun, as a user starts them."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).with_name("scripts")
LIMIT_S = 240.0
COMMANDS = {"syncline": ("-m", "syncline", "run"), "torchrun": ("-m", "torch.distributed.run")}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A launcher that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        """Lines of standard output, sorted: ranks print in any order.

        Each begins with its rank. torchrun's workers write text and line end separately, so that a
        line of another rank may come between them.
        """
        parts = re.split(r"(?=\[\d+\] )", self.stdout)
        return sorted(part.replace("\n", "") for part in parts if part.strip())


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """Starts jobs with one of the launchers."""

    name: str
    folder: Path

    def start(
        self, *arguments: str, variables: dict[str, str] | None = None, **options: object
    ) -> subprocess.Popen[str]:
        """Start a job; `PIPE` for all streams unless `options` says otherwise."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TORCHELASTIC", "OMP_", "PET_", "SLURM_", "COLUMNS"))
        }
        environment = {
            **kept,
            "SYNCLINE_STORAGE_PATH": str(self.folder / "runs"),
            **(variables or {}),
        }
        settings: dict[str, Any] = {
            "cwd": SCRIPTS,
            "env": environment,
            "text": True,
            "errors": "replace",
        }
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(
            [sys.executable, *COMMANDS[self.name], *arguments], **{**settings, **streams, **options}
        )

    def run(self, *arguments: str, stdin: str = "", **options: object) -> Ended:
        """Run a job to its end."""
        process = self.start(*arguments, **options)
        try:
            stdout, stderr = process.communicate(stdin, timeout=LIMIT_S)
        except BaseException:
            process.kill()
            raise
        return Ended(code=process.returncode, stdout=stdout, stderr=stderr)


Launchers = Callable[[str], Launcher]


@pytest.fixture
def launcher(tmp_path: Path) -> Launchers:
    """Return a launcher by name, each with a folder of its own."""

    def of(name: str) -> Launcher:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return Launcher(name=name, folder=folder)

    return of


@pytest.fixture
def both(launcher: Launchers) -> Callable[..., tuple[Ended, Ended]]:
    """Return a function that runs a job with both launchers: (`syncline run`, torchrun).

    `FOLDER` in an argument is replaced by a folder of the launcher.
    """

    def run(arguments: Sequence[str], **options: object) -> tuple[Ended, Ended]:
        found = []
        for name in ("syncline", "torchrun"):
            one = launcher(name)
            found.append(
                one.run(*(each.replace("FOLDER", str(one.folder)) for each in arguments), **options)
            )
        return found[0], found[1]

    return run
