"""Which dashboards of this user are up on this machine, and the page that shows a run: what `fit()`
prints when it starts.

Each dashboard keeps a file with its address and storage paths in a directory of this user (mode
0700), and holds a lock on it. The lock ends with the process, however it ends, so whoever finds an
unlocked file may remove it. The token lies there too, for the next dashboard; it is no part of what
is announced.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from syncline import settings

_TOKEN_FILE = "token"
_held: dict[int, Path] = {}  # locks of this process, by descriptor


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A dashboard that is up."""

    url: str
    """Its address, without a slash at its end and without the token."""
    storage_paths: tuple[str, ...]
    """What it shows; a path's place here is its number in the dashboard's addresses."""
    pid: int
    """Its process."""


def directory() -> Path:
    """The directory of this user's dashboards, made if need be.

    Raises:
        PermissionError: Something of that name belongs to somebody else.
        OSError: It cannot be made.
    """
    made = _place()
    made.parent.mkdir(
        mode=0o700, parents=True, exist_ok=True
    )  # what is made on the way to a directory has every right that umask leaves
    if _is_own(made.parent):  # rather than a link, which would have it made anywhere
        made.mkdir(mode=0o700, exist_ok=True)
    if not _is_ours(made):
        raise PermissionError(
            f"{made} belongs to another user or is open to others, so it cannot hold secrets: set SYNCLINE_TMPDIR"
        )
    return made


def announce(url: str, storage_paths: Sequence[str], pid: int | None = None) -> None:
    """Say that a dashboard of this process is up, until `withdraw` or the end of the process.
    OSError where that cannot be written.
    """
    number = os.getpid() if pid is None else pid
    path = directory() / f"dashboard-{number}-{secrets.token_hex(4)}.json"
    text = json.dumps({"url": url.rstrip("/"), "storage_paths": list(storage_paths), "pid": number})
    unnamed = path.with_suffix(".new")
    descriptor = os.open(
        unnamed, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, text.encode())
        os.replace(unnamed, path)  # it gets its name when it is complete and held
    except OSError:
        os.close(descriptor)
        raise
    _held[descriptor] = path


def withdraw() -> None:
    """Take back what this process announced."""
    while _held:
        descriptor, path = _held.popitem()
        path.unlink(missing_ok=True)
        os.close(descriptor)


def alive() -> list[Dashboard]:
    """The dashboards of this user that are up on this machine; what dead ones left is removed."""
    place = _place()
    if not _is_ours(place):
        return []
    found = []
    for name in sorted(os.listdir(place)):
        if name.startswith("dashboard-") and name.endswith(".json"):
            dashboard = _read(place / name)
            if dashboard is not None:
                found.append(dashboard)
    return found


def page_of(run_path: str) -> str | None:
    """Address of the page that shows a run, if a dashboard that covers its storage path is up.
    Takes microseconds where there is none.

    Args:
        run_path: The run directory or its URI, as in `Result.path`.
    """
    storage, _, name = run_path.rstrip("/").rpartition("/")
    for dashboard in alive():
        for number, path in enumerate(dashboard.storage_paths):
            if _same(path, storage):
                return f"{dashboard.url}/run/{number}/{quote(name.encode('utf-8', 'surrogateescape'), safe='')}"
    return None


def shared_token(new: str) -> str:
    """The token of this user's dashboards on this machine: the one that is kept, or `new`, which is
    kept from now on.

    Raises:
        OSError: It cannot be kept.
    """
    path = directory() / _TOKEN_FILE
    complete = path.with_name(f"{_TOKEN_FILE}-{os.getpid()}")
    complete.unlink(missing_ok=True)
    descriptor = os.open(
        complete, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(new)
    try:
        os.link(
            complete, path
        )  # unlike a rename, it leaves alone what another dashboard has put there meanwhile
    except FileExistsError:
        kept = _kept_token(path)
        if kept is not None:
            return kept
        os.replace(complete, path)
    finally:
        complete.unlink(missing_ok=True)
    return new


def _kept_token(path: Path) -> str | None:
    """The token in a file that is ours alone; None where it is damaged, or others could have read
    it.
    """
    facts = path.lstat()
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        return None
    text = path.read_text(encoding="ascii", errors="replace").strip()
    return text if len(text) >= 32 and text.isascii() else None


def _place() -> Path:
    return settings.temporary_directory() / f"syncline-{os.getuid()}" / "dashboards"


def _is_ours(place: Path) -> bool:
    """Whether both directories are this user's, and nobody else may look into the inner one."""
    return _is_own(place.parent) and _is_own(place) and not place.lstat().st_mode & 0o077


def _is_own(directory: Path) -> bool:
    """Whether it is a directory of this user, in which nobody else can put anything."""
    try:
        facts = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o022


def _read(path: Path) -> Dashboard | None:
    """The dashboard that a file announces; None, and no file any more, if it is dead."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _is_free(descriptor) and path not in _held.values():
            path.unlink(missing_ok=True)
            return None
        found = json.loads(os.read(descriptor, 1_000_000))
        return Dashboard(
            url=str(found["url"]),
            storage_paths=tuple(map(str, found["storage_paths"])),
            pid=int(found["pid"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    finally:
        os.close(descriptor)


def _is_free(descriptor: int) -> bool:
    """Whether nobody holds the lock of an open file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _same(path: str, other: str) -> bool:
    """Whether two storage paths are the same place: URIs by their text, directories by where links
    lead.
    """
    if path.rstrip("/") == other.rstrip("/"):
        return True
    return (
        "://" not in path
        and "://" not in other
        and os.path.realpath(path) == os.path.realpath(other)
    )
