"""Child processes that user code starts (a DataLoader's, for example), as members of the session.

A forked child has lost its parent's connection, a spawned one never had any. Both find the session
in an environment variable and connect to the hub's socket on their first use of syncline. They run
no tasks.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
from dataclasses import asdict
from pathlib import Path

from syncline import settings
from syncline.core.embedded import interrupts
from syncline.core.embedded import messages as m
from syncline.core.embedded.channel import Channel
from syncline.core.embedded.engine import EmbeddedEngine, SessionInfo
from syncline.core.embedded.hub_connection import RemoteHubConnection
from syncline.core.embedded.messages import Message
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.shared_reactor import SharedReactor, Waiter
from syncline.core.host import short_socket_path

SOCKET_NAME = "hub.sock"
WELCOME_S = 60.0
"""Seconds that a child waits for the hub's answer."""


def announce(session: SessionInfo) -> None:
    """Announce the session to child processes of this process."""
    os.environ[settings.SESSION] = json.dumps(asdict(session))


def withdraw() -> None:
    """Remove the announcement after the session has ended."""
    os.environ.pop(settings.SESSION, None)


def listen(directory: Path) -> socket.socket:
    """Open the hub's socket in the session's directory, which only this user may enter."""
    listener = socket.socket(socket.AF_UNIX)
    listener.setblocking(False)
    with short_socket_path(directory / SOCKET_NAME) as path:
        listener.bind(path)
    listener.listen(128)
    return listener


def join(announced: str) -> EmbeddedEngine:
    """Return an engine for this process, connected to the hub of the session.

    Raises RuntimeError if the session has ended.
    """
    session = SessionInfo(**json.loads(announced))
    connection = socket.socket(socket.AF_UNIX)
    try:
        with short_socket_path(Path(session.directory, SOCKET_NAME)) as path:
            connection.connect(path)
    except OSError as error:
        connection.close()
        raise RuntimeError(
            f"this process (pid={os.getpid()}) is a child of a syncline program that has ended, so "
            f"it cannot use that program's session: {error}"
        ) from error
    channel = Channel(connection)
    reactor = Reactor()
    shared_reactor = SharedReactor(
        reactor, name="syncline-reactor", on_idle=lambda: hub_connection.flush_references()
    )
    hub_connection = RemoteHubConnection(channel, shared_reactor, reactor)
    hub_connection.on_closed = shared_reactor.close
    numbers: list[int] = []
    welcome = Waiter()

    def accept(message: Message) -> None:
        if message[0] == m.WELCOME:
            numbers.append(message[1])
            welcome.settle()

    hub_connection.accept_work = accept
    if not shared_reactor.wait(welcome, WELCOME_S):
        raise RuntimeError(
            f"the program that this process (pid={os.getpid()}) belongs to did not answer within "
            f"{WELCOME_S:g} s: check that it is running and not stopped"
        )

    def leave() -> None:
        shared_reactor.close()
        channel.close()

    def abandon() -> None:
        interrupts.reset_after_fork()
        channel.close()
        reactor.close()

    engine = EmbeddedEngine(
        hub_connection, session, numbers[0], environment={}, end=leave, abandon=abandon
    )
    engine.before_definition = check_main_is_imported
    shared_reactor.start()
    return engine


def check_main_is_imported() -> None:
    """Raise RuntimeError in a spawned process that is still importing the user's script.

    Without an error the script would run again in each child of each worker.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(
            "The script starts tasks, actors or a training at its top level, and a child process "
            "that multiprocessing has spawned (for a DataLoader or a Pool, for example) imports "
            "the script. Put the top-level calls under `if __name__ == '__main__':`."
        )
