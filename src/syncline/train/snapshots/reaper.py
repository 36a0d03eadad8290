"""Program that deletes the snapshots of a run some time after its last process has died.

It is started as `python -I -S reaper.py DIRECTORY SECONDS` beside the run, and uses only the
standard library, so it takes a few megabytes. It waits on the lock that all processes of the run
share, and ends as soon as the directory is gone. It holds its own lock, so that a directory has
one reaper.
"""

import fcntl
import os
import shutil
import sys
import time

ALIVE_LOCK = "alive.lock"
"""Locked (shared) by every process of the run. Record locks: the system releases them with the
process, also if children of it live on.
"""
REAPER_LOCK = "reaper.lock"
POLL_S = 1.0
"""Interval at which the reaper checks whether the directory is gone."""


def reap(directory: str, keep_s: float) -> None:
    """Delete the directory `keep_s` seconds after the last process of its run has died."""
    try:
        own = os.open(os.path.join(directory, REAPER_LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.lockf(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        alive = os.open(os.path.join(directory, ALIVE_LOCK), os.O_RDWR)
    except OSError:
        return  # the directory is gone, or it has a reaper
    while True:
        fcntl.lockf(alive, fcntl.LOCK_EX)  # returns when no process of the run is alive
        fcntl.lockf(alive, fcntl.LOCK_UN)
        deadline = time.monotonic() + keep_s
        while time.monotonic() < deadline:
            if not os.path.exists(os.path.join(directory, ALIVE_LOCK)):
                return
            if _is_held(alive):
                break  # the run continues
            time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))
        else:
            if remove_unused(directory):
                return


def remove_unused(directory: str) -> bool:
    """Delete a directory unless a process of its run is alive; return True if it is gone."""
    try:
        alive = os.open(os.path.join(directory, ALIVE_LOCK), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        shutil.rmtree(directory, ignore_errors=True)
        return True
    try:
        fcntl.lockf(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
        return True
    except OSError:
        return False
    finally:
        os.close(alive)


def has_reaper(directory: str) -> bool:
    """Return True if a process of this program waits to delete the directory."""
    try:
        reaper = os.open(os.path.join(directory, REAPER_LOCK), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return _is_held(reaper)
    finally:
        os.close(reaper)


def _is_held(lock: int) -> bool:
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.lockf(lock, fcntl.LOCK_UN)
    return False


if __name__ == "__main__":
    os.chdir("/")
    reap(sys.argv[1], float(sys.argv[2]))
