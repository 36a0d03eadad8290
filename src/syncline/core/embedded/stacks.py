"""The Python stacks of a worker, taken from outside: also while it holds the interpreter's lock in
C code and answers nobody.

A worker offers a signal whose handler, in C, writes the stacks of all threads into memory that
others may read through `/proc`. Not covered: native frames, and processes that workers start.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal
import time
from pathlib import Path

SIGNAL = signal.SIGRTMAX - 3
"""One that programs hardly use; without `offer` it would end a process."""
_NAME = "syncline-stacks"
WRITING_S = 0.2
"""After so long without a further line a stack is whole."""
ANSWER_S = 3.0
"""How long a process may take to begin: one that was stopped, or that the system does not run,
never does.
"""


def offer() -> None:
    """In a worker, before it says that it is ready."""
    fd = os.memfd_create(_NAME)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    faulthandler.register(SIGNAL, file=fd, all_threads=True)


def taken_from(pid: int) -> str | None:
    """The stacks of a worker's threads, innermost calls first; None where it is gone, or does not
    begin to write within `ANSWER_S`.
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


def _memory_of(pid: int) -> Path | None:
    try:
        return next(
            (fd for fd in Path(f"/proc/{pid}/fd").iterdir() if _NAME in os.readlink(fd)), None
        )
    except OSError:
        return None
