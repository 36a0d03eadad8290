"""`start`: this command again, in a process without a terminal that holds serve."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from syncline import settings
from syncline.cli.output import CommandError, warn
from syncline.core.embedded.session_directories import is_private, sessions_directory

SHOWN_LINES = 30
"""Lines of the output to show if the process fails."""


def start(arguments: Sequence[str]) -> None:
    """Run `syncline` with these arguments in the background and wait until it is ready.

    Raises CommandError with its output if it ends before.
    """
    log = _log_path()
    read, write = os.pipe()
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "syncline", *arguments, f"--ready-fd={write}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[write],
            start_new_session=True,
        )
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        is_ready = bool(pipe.read(1))
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    if not is_ready:
        code = process.wait()
        log.unlink(missing_ok=True)
        last = "\n".join(text.splitlines()[-SHOWN_LINES:]).removeprefix("syncline: ")
        raise CommandError(last or f"the background process ended with exit code {code}")
    click.echo(text)
    click.echo(f"Process {process.pid} serves in the background; its output is in {log}")
    click.echo("`syncline serve status` shows it, `syncline serve shutdown` ends it")
    process.returncode = 0  # it outlives this command


def _log_path() -> Path:
    """Return a file of this user that no other user can have prepared."""
    directory = sessions_directory(settings.temporary_directory())
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not is_private(directory):
        raise CommandError(
            f"{directory} belongs to another user: set SYNCLINE_TMPDIR to a directory of your own"
        )
    path = directory / f"serve-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    if path.exists():
        warn(f"{path} is overwritten")
    return path
