"""Python stack dumps of workers, taken from another process.

A worker registers a signal whose C handler writes the stacks of all threads into its
`process_memory`, which other processes read. This works even while C code holds the interpreter
lock. Not covered: native frames, and processes that workers start.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal
import time
from pathlib import Path

from syncline.core.embedded import process_memory

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
    fd = process_memory.create(_NAME, session)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    faulthandler.register(SIGNAL, file=fd, all_threads=True)


def take(pid: int) -> str | None:
    """Return the stacks of a worker's threads, innermost calls first.

    None if it is gone, or does not begin to write within `ANSWER_S`.
    """
    memory = process_memory.find(_NAME, pid)
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
