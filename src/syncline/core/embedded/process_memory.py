"""A file of a process that other processes of the user find by its process id.

On Linux it is anonymous, ends with the process, and is found through `/proc`. Elsewhere it is a
file in the directory of sessions, and the next process removes those of dead processes. Children
inherit it under Linux, and are not found by it elsewhere.
"""

from __future__ import annotations

import os
from pathlib import Path

from syncline import settings, system
from syncline.core.embedded.session_directories import sessions_directory
from syncline.optional import deferred

psutil = deferred("psutil")


def create(name: str, session: Path | None = None) -> int:
    """Return the descriptor of a new empty file of this process.

    Args:
        name: Name for `find`; a process has one file of a name.
        session: Directory of the process's session, which removes the file where it has a path.
    """
    if system.IS_LINUX:
        return os.memfd_create(name)
    directory = session or sessions_directory(settings.temporary_directory())
    if session is None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for other in directory.glob(f"{name}-*"):
            if not psutil.pid_exists(int(other.name.rpartition("-")[2])):
                other.unlink(missing_ok=True)
    path = directory / f"{name}-{os.getpid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)


def find(name: str, pid: int) -> Path | None:
    """Return a path of the file that a process has created; None if it has none, or has ended."""
    if not system.IS_LINUX:
        base, file = sessions_directory(settings.temporary_directory()), f"{name}-{pid}"
        found = next((path for at in ("", "*/") for path in base.glob(at + file)), None)
        return found if found is not None and psutil.pid_exists(pid) else None
    try:
        return next(
            (fd for fd in Path(f"/proc/{pid}/fd").iterdir() if name in os.readlink(fd)), None
        )
    except OSError:
        return None
