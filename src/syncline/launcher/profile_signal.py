"""Transport of requests for profiles: a rarely used signal, and a file found by process id."""

from __future__ import annotations

import signal
from pathlib import Path

from syncline.core.embedded import process_memory

SIGNAL = signal.SIGRTMAX - 4 if hasattr(signal, "SIGRTMAX") else signal.SIGIO
"""A rarely used signal; without its handler it would end the process or do nothing."""
NAME = "syncline-profile"


def memory_of(pid: int) -> Path | None:
    """Return the memory for requests to a process; None if it serves none."""
    return process_memory.find(NAME, pid)
