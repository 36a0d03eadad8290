"""Python stack dumps of workers, taken from another process.

A worker registers a signal whose C handler writes the stacks of all threads into memory that other
processes read through `/proc`, or into a file where there is no `/proc`. This works even while C
code holds the interpreter lock. Not covered: native frames, and processes that workers start.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal
import time
from pathlib import Path

from syncline import settings, system
from syncline.core.embedded.session_directories import sessions_directory
from syncline.optional import deferred

psutil = deferred("psutil")
SIGNAL = signal.SIGRTMAX - 3 if hasattr(signal, "SIGRTMAX") else signal.SIGURG
"""A rarely used signal; without `register` it would end the process or do nothing."""
_NAME = "syncline-stacks"
WRITING_S = 0.2
"""Seconds without a new line after which a dump is complete."""
ANSWER_S = 3.0
"""Seconds that a process may take to begin; a stopped one never does."""


def register(session: Path | None = None) -> None:
    """Register the signal handler; a worker calls this before it reports that it is ready.

    Args:
        session: Directory of the worker's session, which removes the file of portable mode.
    """
    fd = os.memfd_create(_NAME) if system.IS_LINUX else _new_file(session)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    faulthandler.register(SIGNAL, file=fd, all_threads=True)


def take(pid: int) -> str | None:
    """Return the stacks of a worker's threads, innermost calls first.

    None if it is gone, or does not begin to write within `ANSWER_S`.
    """
    memory = _memory_of(pid)
    if memory is None:
        return None
    try:
        os.truncate(memory, 0)
        os.kill(pid, SIGNAL)
        _await_writing(memory)
        return memory.read_text(errors="replace") or None
    except OSError:  # it has just ended
        return None


def _await_writing(memory: Path) -> None:
    size, since = 0, time.monotonic()
    while time.monotonic() < since + (WRITING_S if size else ANSWER_S):
        time.sleep(0.01)
        now = memory.stat().st_size
        if now != size:
            size, since = now, time.monotonic()


def _new_file(session: Path | None) -> int:
    """Return a file of this process; without a session, remove those of dead processes."""
    directory = session or sessions_directory(settings.temporary_directory())
    if session is None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for other in directory.glob(f"{_NAME}-*"):
            if not psutil.pid_exists(int(other.name.rpartition("-")[2])):
                other.unlink(missing_ok=True)
    path = directory / f"{_NAME}-{os.getpid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)


def _memory_of(pid: int) -> Path | None:
    if not system.IS_LINUX:
        base, name = sessions_directory(settings.temporary_directory()), f"{_NAME}-{pid}"
        return next((path for at in ("", "*/") for path in base.glob(at + name)), None)
    try:
        return next(
            (fd for fd in Path(f"/proc/{pid}/fd").iterdir() if _NAME in os.readlink(fd)), None
        )
    except OSError:
        return None
