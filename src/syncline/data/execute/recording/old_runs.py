"""Which records of executions are kept: the newest ones. Older ones go when a new one begins.

Only a directory goes that nobody else could have made or added to: its name has the form of ours
and `run.json` says so, its execution has ended, and all in it are files that executions write.
Links are not followed; several programs may do this at the same time. Not covered: records of
programs that were killed, which stay until somebody removes them.
"""

from __future__ import annotations

import json
import os
import re
import stat
from typing import Any

PREFIX = "data_"
"""How the names of these run directories begin."""
KEPT = 200
"""So many are kept in one storage path."""

_NAME = re.compile(rf"{PREFIX}[A-Za-z0-9.-]+_(\d{{4}}-\d\d-\d\d_\d\d-\d\d-\d\d)_[0-9a-f]{{4,16}}")
_FILES = frozenset({"run.json", "environment.json", "events.jsonl", "outcome.json"})
_LINES = re.compile(r"[A-Za-z0-9.-]+\.jsonl")
_LARGEST = 1_000_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_old(storage: str, kept: int = KEPT) -> int:
    """Remove records below the storage path that are older than the `kept` newest ones, as far as
    they may go; how many went.

    Raises:
        OSError: The storage path cannot be read.
    """
    descriptor = os.open(storage, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return sum(_remove(descriptor, name) for name in surplus(_directories(descriptor), kept))
    finally:
        os.close(descriptor)


def surplus(names: list[str], kept: int) -> list[str]:
    """Of the names of directories those of records that are older than the `kept` newest ones.
    Pure.
    """
    stamped = sorted((found[1], name) for name in names if (found := _NAME.fullmatch(name)))
    return [name for _, name in stamped[: max(0, len(stamped) - kept)]]


def _directories(parent: int) -> list[str]:
    with os.scandir(parent) as entries:
        return [
            entry.name
            for entry in entries
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False)
        ]


def _remove(parent: int, name: str) -> bool:
    """Remove one record if it may go. What somebody else does at the same time ends this, and the
    next one goes on.
    """
    try:
        run = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            if not _may_go(run):
                return False
            _empty(run)
        finally:
            os.close(run)
        os.rmdir(name, dir_fd=parent)
    except OSError:
        return False
    return True


def _may_go(run: int) -> bool:
    described, outcome = _object(run, "run.json"), _object(run, "outcome.json")
    if described.get("kind") != "data" or not outcome.get("status"):
        return False
    for name in os.listdir(run):
        if name == "data":
            data = os.open(name, _DIRECTORY, dir_fd=run)
            try:
                if not all(
                    _LINES.fullmatch(each) and _is_file(data, each) for each in os.listdir(data)
                ):
                    return False
            finally:
                os.close(data)
        elif name not in _FILES or not _is_file(run, name):
            return False
    return True


def _empty(run: int) -> None:
    """What tells that this is a record that has ended goes last: after a kill the rest of it goes
    the next time.
    """
    names = set(os.listdir(run))
    if "data" in names:
        data = os.open("data", _DIRECTORY, dir_fd=run)
        try:
            for name in filter(_LINES.fullmatch, os.listdir(data)):
                os.unlink(name, dir_fd=data)
        finally:
            os.close(data)
        os.rmdir("data", dir_fd=run)
    last = ("outcome.json", "run.json")
    for name in [*(names & _FILES - {*last}), *last]:
        os.unlink(name, dir_fd=run)


def _object(run: int, name: str) -> dict[str, Any]:
    """A file of the record; empty if there is none, or no such."""
    try:
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=run
        )
    except OSError:
        return {}
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return {}
        try:
            value = json.loads(file.read(_LARGEST))
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _is_file(directory: int, name: str) -> bool:
    return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
