"""Whether the process of a consumer still runs, as far as that can be seen from here."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

# The time at which a process started is computed from the machine's clock, which may be set in
# between.
_CLOCK_SLACK_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process on some machine."""

    place: str
    """The same for all processes that can see each other's ids."""
    pid: int
    started_s: float
    """When it started, in seconds since 1970: ids are used again."""

    @property
    def is_near(self) -> bool:
        """Whether it can be seen from here."""
        return self.place == _place()

    def is_alive(self) -> bool:
        """Whether it runs; for one that is near only."""
        try:
            process = psutil.Process(self.pid)
            return (
                process.status() != psutil.STATUS_ZOMBIE
                and abs(process.create_time() - self.started_s) < _CLOCK_SLACK_S
            )
        except psutil.NoSuchProcess:
            return False


def this_process() -> Process:
    """The calling one."""
    return Process(place=_place(), pid=os.getpid(), started_s=psutil.Process().create_time())


def _place() -> str:
    """The boot of this machine, and the namespace that process ids belong to: containers have their
    own.
    """
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()
