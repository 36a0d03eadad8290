"""`ForkServerProcess`: the process of a fork server, as the driver starts and ends it."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import dataclass

from syncline import settings

CLOSE_S = 5.0
"""Seconds that a fork server has to exit, for example while it imports a module."""


@dataclass(frozen=True)
class ForkServerProcess:
    """A fork server: its process, and the driver's end of the connection to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket

    @staticmethod
    def start() -> ForkServerProcess:
        """Start a fork server; it waits for a `ForkServerConfig`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from syncline.core.embedded.fork_server import main; main({theirs.fileno()})"
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

    def close(self) -> None:
        """End it and wait for its end; its workers end with it."""
        self.connection.close()
        try:
            self.process.wait(timeout=CLOSE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
