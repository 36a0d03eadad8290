"""`Template`: the process that has imported torch and forks the agent and the workers.

It starts with the launcher and ends with it, or it is the one of `syncline warm`.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from syncline.core.embedded import fork_server_messages, program_server
from syncline.core.embedded.program_server import Work
from syncline.records import dataclass

MODULES = ("torch", "syncline.launcher.torch_agent", "syncline.launcher.script_process")
"""Modules that it imports."""
CLOSE_S = 5.0
"""Seconds that it has to exit, for example while it imports a module."""


class Template:
    """The launcher's connection to its template."""

    def __init__(
        self, connection: socket.socket, process: subprocess.Popen[bytes] | None = None
    ) -> None:
        self._connection = connection
        self._process = process
        self._launched = 0

    @classmethod
    def start(cls, variables: Mapping[str, str], modules: Sequence[str] = MODULES) -> Template:
        """Start one with these environment variables."""
        ours, theirs = fork_server_messages.socket_pair()
        code = program_server.interpreter_code("main", theirs.fileno(), tuple(modules))
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=dict(variables),
        )
        theirs.close()
        return cls(ours, process)

    def register(self, selector: selectors.BaseSelector) -> None:
        """Let a selector wait for its notices."""
        selector.register(self._connection, selectors.EVENT_READ, self)

    def launch(self, work: Work, streams: tuple[int, int, int], others: Sequence[int] = ()) -> int:
        """Ask for a process; return the number that its notices have."""
        self._launched += 1
        program_server.launch(self._connection, self._launched, work, streams, others)
        return self._launched

    def receive(self) -> object | None:
        """Return the next notice, `WorkerStarted` or `WorkerEnded`; None if the template ended."""
        try:
            received = fork_server_messages.receive(self._connection)
        except ConnectionError:
            return None
        return None if received is None else received[0]

    def close(self) -> None:
        """End it, and with it the processes that are left."""
        self._connection.close()
        if self._process is None:
            return
        try:
            self._process.wait(timeout=CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True, kw_only=True)
class StartedAgent:
    """A requested agent."""

    number: int
    """Number in notices of the template."""
    channel: socket.socket
    """The launcher's end of the connection to it."""


def start_agent(template: Template, work: Work) -> StartedAgent:
    """Ask for the agent; its work gets the other end of the channel."""
    ours, theirs = fork_server_messages.socket_pair()
    with theirs:
        number = template.launch(work, (standard_input(), 1, 2), (theirs.fileno(),))
    return StartedAgent(number=number, channel=ours)


def standard_input() -> int:
    """Return a descriptor of this process's standard input, or of an empty one."""
    try:
        os.fstat(0)
    except OSError:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return 0
