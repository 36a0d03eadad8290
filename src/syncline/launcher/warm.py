"""The warm template, as its users see it: `connect` for a job, `start` and `stop` for a person.

Each template has a socket of mode 0700 in the user's directory of sessions, named after its
identity (`warm_identity`). A job of another identity finds no socket and starts its own template.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from syncline import settings
from syncline.core import host
from syncline.core.embedded import fork_server_messages, program_server
from syncline.core.embedded.session_directories import is_private, sessions_directory
from syncline.launcher import warm_identity
from syncline.launcher.template import MODULES, Template

DIRECTORY = "warm"
LOG = ".log"
"""Ending of the file beside a socket that has the template's output."""
START_S = 120.0
"""Seconds that a template may take to import torch."""
_POLL_S = 0.02


def directory() -> Path:
    """Return the directory of the sockets; it need not exist."""
    return sessions_directory(settings.temporary_directory()) / DIRECTORY


def socket_path(variables: Mapping[str, str]) -> Path:
    """Return the socket of the template for a job with these variables."""
    return directory() / f"{warm_identity.digest(variables)}.sock"


def connect(variables: Mapping[str, str]) -> Template | None:
    """Return the warm template for a job with these variables; None without one."""
    if not is_private(directory()):
        return None
    connection = _connection(socket_path(variables))
    return None if connection is None else Template(connection)


def start(variables: Mapping[str, str], idle_s: float) -> float:
    """Start a template unless one is there; return the seconds until it was ready.

    Raises:
        PermissionError: The directory of sessions belongs to another user.
        TimeoutError: It was not ready in time.
        RuntimeError: It could not start.
    """
    began = time.monotonic()
    parent = directory()
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(parent) or not is_private(parent.parent):
        raise PermissionError(
            f"{parent} belongs to another user, so a template there would not be private: set "
            "SYNCLINE_TMPDIR"
        )
    path = socket_path(variables)
    if pid_of(path) is not None:
        return 0.0
    code = program_server.interpreter_code(
        "main", str(path), MODULES, idle_s, module="syncline.launcher.warm_server"
    )
    with path.with_suffix(LOG).open("w+b") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            env=dict(variables),
        )
        while pid_of(path) is None:
            if process.poll() is not None:
                log.seek(0)
                text = log.read().decode(errors="replace").strip().rpartition("\n")[2]
                raise RuntimeError(
                    f"the template ended with code {process.returncode} at its start: {text}"
                )
            if time.monotonic() > began + START_S:
                process.kill()
                raise TimeoutError(f"the template was not ready within {START_S:g} s")
            time.sleep(_POLL_S)
    return time.monotonic() - began


def stop() -> int:
    """Stop all templates of this user; return their number. Jobs started by them continue."""
    pids = {pid for path in sorted(directory().glob("*.sock")) if (pid := pid_of(path))}
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    return len(pids)


def pid_of(path: Path) -> int | None:
    """Return the process of the template with a socket; None if no process listens."""
    connection = _connection(path)
    if connection is None:
        return None
    with connection:
        return host.peer(connection, path).pid or None


def _connection(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, fork_server_messages.SOCKET_TYPE)
    try:
        with host.short_socket_path(path) as short:
            connection.connect(short)
        if host.peer(connection, path).uid == os.getuid():
            return connection
    except OSError:
        pass
    connection.close()
    return None
