"""Discovery of the dashboards of this user on this machine, and of the actors that control runs.

`fit()` prints the address of the page that shows the run. Each dashboard writes a file with its
address and storage paths into a directory of the user (mode 0700) and holds a lock on the file. The
operating system releases the lock when the process ends, so an unlocked file belongs to a dead
dashboard and may be removed. The directory also holds the shared access token; it is not part of
the announcement.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from syncline import settings

RUN_ACTOR_NAMESPACE = "syncline"
"""Namespace of the actors that control runs, whatever namespace the program uses."""
_TOKEN_FILE = "token"
_held: dict[int, Path] = {}  # descriptor of each lock that this process holds -> its file


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A running dashboard."""

    url: str
    """Address without the trailing slash and without the token."""
    storage_paths: tuple[str, ...]
    """Storage paths that it shows, in the order in which its URLs number them."""
    pid: int
    """Process ID."""


def directory() -> Path:
    """Return the user's directory of dashboards; create it if needed.

    Raises:
        PermissionError: The directory belongs to another user or is open to others.
        OSError: The directory cannot be created.
    """
    made = _place()
    # mkdir applies `mode` to the last directory only, not to the parents that it creates.
    made.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _is_own(made.parent):  # do not create a directory behind a foreign link
        made.mkdir(mode=0o700, exist_ok=True)
    if not _is_ours(made):
        raise PermissionError(
            f"{made} belongs to another user or is open to others, so it cannot hold secrets: "
            "set SYNCLINE_TMPDIR to a private directory"
        )
    return made


def announce(url: str, storage_paths: Sequence[str], pid: int | None = None) -> None:
    """Announce a dashboard of this process until `withdraw` or the end of the process.

    Raises:
        OSError: The announcement cannot be written.
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
        os.replace(unnamed, path)  # becomes visible complete and locked
    except OSError:
        os.close(descriptor)
        raise
    _held[descriptor] = path


def withdraw() -> None:
    """Remove the announcements of this process."""
    while _held:
        descriptor, path = _held.popitem()
        path.unlink(missing_ok=True)
        os.close(descriptor)


def alive() -> list[Dashboard]:
    """Return the user's running dashboards on this machine; remove the files of dead ones."""
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
    """Return the address of the page that shows a run, or None if no dashboard covers its storage
    path. Takes microseconds if no dashboard runs.

    Args:
        run_path: Run directory or URI, as in `Result.path`.
    """
    storage, _, name = run_path.rstrip("/").rpartition("/")
    for dashboard in alive():
        for number, path in enumerate(dashboard.storage_paths):
            if _same(path, storage):
                quoted = quote(name.encode("utf-8", "surrogateescape"), safe="")
                return f"{dashboard.url}/run/{number}/{quoted}"
    return None


def shared_token(new: str) -> str:
    """Return the token shared by the user's dashboards on this machine; store `new` if none is
    stored yet.

    Raises:
        OSError: The token cannot be stored.
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
        os.link(complete, path)  # unlike a rename, never replaces another dashboard's token
    except FileExistsError:
        kept = _kept_token(path)
        if kept is not None:
            return kept
        os.replace(complete, path)
    finally:
        complete.unlink(missing_ok=True)
    return new


def _kept_token(path: Path) -> str | None:
    """Return the stored token; None if it is damaged or other users could have read it."""
    facts = path.lstat()
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        return None
    text = path.read_text(encoding="ascii", errors="replace").strip()
    return text if len(text) >= 32 and text.isascii() else None


def _place() -> Path:
    return settings.temporary_directory() / f"syncline-{os.getuid()}" / "dashboards"


def _is_ours(place: Path) -> bool:
    """Return True if both directories are this user's and the inner one is closed to others."""
    return _is_own(place.parent) and _is_own(place) and not place.lstat().st_mode & 0o077


def _is_own(directory: Path) -> bool:
    """Return True if this is a directory of this user that only this user can write."""
    try:
        facts = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o022


def _read(path: Path) -> Dashboard | None:
    """Return the dashboard that a file announces; None if it is dead (and remove the file)."""
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
    """Return True if no process holds the lock of an open file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _same(path: str, other: str) -> bool:
    """Compare two storage paths: URIs by their text, directories by their real path."""
    if path.rstrip("/") == other.rstrip("/"):
        return True
    return (
        "://" not in path
        and "://" not in other
        and os.path.realpath(path) == os.path.realpath(other)
    )


def run_actor_name(filesystem_type: str, path: str, name: str) -> str:
    """Return the name of the actor that controls a run: unique among runs with the same name.

    Args:
        filesystem_type: `type_name` of the filesystem of the run directory.
        path: Run directory, a path on this filesystem.
        name: Name of the run.
    """
    return f"train:{storage_digest(filesystem_type, path)}:{name}"


def storage_digest(filesystem_type: str, path: str) -> str:
    """Return the digest of a run directory that is part of the names of its actors."""
    return hashlib.blake2b(f"{filesystem_type}:{path}".encode(), digest_size=8).hexdigest()
