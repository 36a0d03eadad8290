"""Python stack dumps of workers, taken from another process.

A thread of the worker waits for a signal and writes the stacks of all threads into the worker's
`process_memory`, which other processes read. It holds the interpreter lock meanwhile: stacks of
threads that run cannot be read without a risk of crashes. If it does not answer, C code holds the
lock, and a second signal's C handler writes the stacks, which do not change then. Not covered:
native frames, and processes that workers start.
"""

from __future__ import annotations

import _thread
import faulthandler
import fcntl
import os
import signal
import time
from pathlib import Path

from syncline.core.embedded import process_memory

_HAS_REALTIME = hasattr(signal, "SIGRTMAX")
SIGNAL = signal.SIGRTMAX - 3 if _HAS_REALTIME else signal.SIGURG
"""A rarely used signal; without `register` it would end the process or do nothing."""
URGENT_SIGNAL = signal.SIGRTMAX - 5 if _HAS_REALTIME else signal.SIGVTALRM
"""A rarely used signal for processes that do not answer to the first one."""
_NAME = "syncline-stacks"
WRITING_S = 0.2
"""Seconds without a new line after which a dump is complete."""
ANSWER_S = 1.0
"""Seconds after which the second signal is sent."""
URGENT_ANSWER_S = 3.0
"""Seconds that a process may take to begin after it; a stopped one never does."""


def register(session: Path | None = None) -> None:
    """Begin to answer; a worker calls this before it starts threads and reports that it is ready.

    Args:
        session: Directory of the worker's session, which removes the file of portable mode.
    """
    fd = process_memory.create(_NAME, session)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    for number in (SIGNAL, URGENT_SIGNAL):  # the first may reach a thread that does not block it
        faulthandler.register(number, file=fd, all_threads=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, (SIGNAL,))  # in all threads, for `sigwait`
    _thread.start_new_thread(_answer, (fd,))  # not a `threading.Thread`: programs count those


def _answer(fd: int) -> None:
    while True:
        signal.sigwait((SIGNAL,))
        faulthandler.dump_traceback(fd)


def take(pid: int) -> str | None:
    """Return the stacks of a worker's threads, innermost calls first.

    None if it is gone, or does not begin to write within `ANSWER_S` and `URGENT_ANSWER_S`.
    """
    memory = process_memory.find(_NAME, pid)
    if memory is None:
        return None
    try:
        os.truncate(memory, 0)
        for number, answer_s in ((SIGNAL, ANSWER_S), (URGENT_SIGNAL, URGENT_ANSWER_S)):
            os.kill(pid, number)
            if _is_written(memory, answer_s):
                return _without_own_thread(memory.read_text(errors="replace"))
    except OSError:  # it has just ended
        pass
    return None


def _is_written(memory: Path, answer_s: float) -> bool:
    """Wait for the end of a dump; return False if none began."""
    size, since = 0, time.monotonic()
    while time.monotonic() < since + (WRITING_S if size else answer_s):
        time.sleep(0.01)
        now = memory.stat().st_size
        if now != size:
            size, since = now, time.monotonic()
    return size > 0


def _without_own_thread(dump: str) -> str:
    own = f'File "{__file__}", line '
    return "\n\n".join(each for each in dump.split("\n\n") if own not in each)
