"""`ForkServerProcess`: the process of a fork server, as the driver starts and ends it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence

from syncline import settings
from syncline.core.embedded import fork_server_messages

CLOSE_S = 5.0
"""Seconds that a fork server has to exit, for example while it imports a module."""


class ForkServerProcess:
    """A fork server: its process, and the driver's end of the connection to it."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        self.process = process
        self.connection = connection

    @staticmethod
    def start(modules: Sequence[str] = ()) -> ForkServerProcess:
        """Start a fork server; it imports `modules` while it waits for a `ForkServerConfig`."""
        ours, theirs = fork_server_messages.socket_pair()
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            "from syncline.core.embedded.fork_server import main; "
            f"main({theirs.fileno()}, {tuple(modules)!r})"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=settings.inherited_environment(),
        )
        theirs.close()
        return ForkServerProcess(process, ours)

    def import_soon(self, module: str) -> bool:
        """Let it import a module as soon as it is idle; return False if it has ended."""
        try:
            fork_server_messages.send(self.connection, module)
        except OSError:
            return False
        return True

    def abandon(self) -> None:
        """Close the inherited descriptor in a forked child of the driver."""
        self.connection.close()
        self.process.returncode = 0  # not a child of this process

    def kill(self) -> None:
        """Kill it before it has started a worker."""
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it and wait for its end; its workers end with it."""
        self.connection.close()
        try:
            self.process.wait(timeout=CLOSE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
