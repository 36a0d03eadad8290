"""The process of a warm template: imports torch once and forks a server for each job.

It ends when no job has come for some time, and when its identity has changed, for example because
a package was installed. Each job has a separate server process, so that it outlives the template.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from syncline import settings, system
from syncline.core import host
from syncline.core.embedded import fork_server_messages
from syncline.core.embedded.process_server import Program
from syncline.core.embedded.program_server import import_all, serve
from syncline.launcher import warm, warm_identity

CHECK_S = 60.0
"""Seconds between two checks of the identity."""
_BACKLOG = 16


def main(path: str, modules: Sequence[str], idle_s: float) -> Program | None:
    """Serve jobs at a socket until idle; return the work of a program in its process."""
    variables = settings.inherited_environment()
    directory = os.getcwd()
    identity = warm_identity.digest(variables, directory)
    os.chdir("/")
    gc.disable()
    import_all(modules)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # An exception of a handler would be lost in functions that run around a fork.
    stop_read, stop_write = system.nonblocking_pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(stop_write, b"\0"))
    listener = _listen(Path(path))
    is_template = True
    try:
        last_job = time.monotonic()
        while (left_s := last_job + idle_s - time.monotonic()) > 0:
            ready = select.select([listener.fileno(), stop_read], [], [], min(left_s, CHECK_S))[0]
            if stop_read in ready:
                return None
            if not ready:
                if warm_identity.digest(variables, directory) != identity:
                    return None
                continue
            connection, _ = listener.accept()
            if host.peer(connection).uid == os.getuid() and os.fork() == 0:
                is_template = False
                listener.close()
                return _serve_job(connection)
            connection.close()
            last_job = time.monotonic()
        return None
    finally:
        if is_template:
            host.withdraw_listener(Path(path))
            Path(path).with_suffix(warm.LOG).unlink(missing_ok=True)


def _serve_job(connection: socket.socket) -> Program:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    return serve(connection)


def _listen(path: Path) -> socket.socket:
    """Open the socket under its name; another template of the same identity is replaced."""
    listener = socket.socket(socket.AF_UNIX, fork_server_messages.SOCKET_TYPE)
    scratch = path.with_suffix(f".{os.getpid()}")
    with host.short_socket_path(scratch) as short:
        listener.bind(short)
    os.chmod(scratch, 0o700)
    listener.listen(_BACKLOG)
    host.publish_listener(path)
    scratch.rename(path)
    return listener
