"""Whether the process that a record names still lives. Numbers of processes are given again, and
clocks are set back and forth, so a record has a mark, too, that no other process has: the start of
the machine, the namespace of process numbers, and when in it the process began.
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil

_STATE, _START = 0, 19
"""Places in `/proc/…/stat` after the name of the program: the state, and the start in ticks since
the machine's.
"""


def mark(pid: int) -> str | None:
    """What tells this process from all others, of other machines too; None where there is none, or
    the system does not say it.
    """
    found = _seen(pid)
    return None if found is None else "/".join(found)


def is_alive(pid: int, marked: str | None, began_before: float) -> bool:
    """Whether the process of a record lives. One that cannot be seen from here does, as far as is
    known.

    Args:
        pid: Its number. marked: Its mark; None in records of before there were marks. began_before:
        When the record was begun, in seconds since the epoch; used where there is no mark.
    """
    if marked is None:
        began = _began(pid)
        return began is not None and began <= began_before + 1.0
    boot, namespace, start = (*marked.split("/"), "", "")[:3]
    if boot == _boot() and namespace != _namespace():  # a container beside this one
        return True
    return _seen(pid) == (boot, namespace, start)


def _seen(pid: int) -> tuple[str, str, str] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[_STATE] in "ZX" else (_boot(), _namespace(), fields[_START])


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _began(pid: int) -> float | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except (psutil.Error, ValueError, OverflowError):
        return None
