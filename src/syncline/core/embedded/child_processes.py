"""Processes that a worker, or the program, makes itself (a DataLoader's, for one) take part too,
whichever way they are started.

A child that was forked has lost its parent's connection; one that was spawned never had any. Both
find the session in an environment variable, and connect to the hub's socket on their first use of
syncline. They take no work.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict
from pathlib import Path

from syncline import settings
from syncline.core.embedded import interrupts
from syncline.core.embedded import messages as m
from syncline.core.embedded.channel import Channel
from syncline.core.embedded.engine import EmbeddedEngine, SessionFacts
from syncline.core.embedded.link import RemoteLink
from syncline.core.embedded.messages import Message
from syncline.core.embedded.pump import Pump, Waiter
from syncline.core.embedded.reactor import Reactor
from syncline.core.unix_sockets import by_short_name

SOCKET_NAME = "hub.sock"
WELCOME_S = 60.0
"""How long a child waits for the hub's answer."""


def announce(facts: SessionFacts) -> None:
    """Let children of this process find the session."""
    os.environ[settings.SESSION] = json.dumps(asdict(facts))


def withdraw() -> None:
    """The session has ended."""
    os.environ.pop(settings.SESSION, None)


def listen(directory: Path) -> socket.socket:
    """The hub's socket, in the session's directory, which only this user may enter."""
    listener = socket.socket(socket.AF_UNIX)
    listener.setblocking(False)
    by_short_name(directory, SOCKET_NAME, listener.bind)
    listener.listen(128)
    return listener


def join(session: str) -> EmbeddedEngine:
    """An engine for this process, connected to the hub of the session. RuntimeError where the
    session is over.
    """
    facts = SessionFacts(**json.loads(session))
    connection = socket.socket(socket.AF_UNIX)
    try:
        by_short_name(Path(facts.directory), SOCKET_NAME, connection.connect)
    except OSError as error:
        connection.close()
        raise RuntimeError(
            f"this process (pid={os.getpid()}) is a child of a syncline program that has ended, so it cannot take part in it: {error}"
        ) from error
    channel = Channel(connection)
    reactor = Reactor()
    pump = Pump(reactor, name="syncline-pump", tend=lambda: link.flush_references())
    link = RemoteLink(channel, pump, reactor)
    link.on_closed = pump.close
    numbers: list[int] = []
    welcome = Waiter()

    def accept(message: Message) -> None:
        if message[0] == m.WELCOME:
            numbers.append(message[1])
            welcome.settle()

    link.accept_work = accept
    if not pump.wait(welcome, WELCOME_S):
        raise RuntimeError(
            f"the program that this process (pid={os.getpid()}) belongs to did not answer within {WELCOME_S:g} s"
        )

    def leave() -> None:
        pump.close()
        channel.close()

    def abandon() -> None:
        interrupts.reset_after_fork()
        channel.close()
        reactor.close()

    engine = EmbeddedEngine(link, facts, numbers[0], environment={}, end=leave, abandon=abandon)
    pump.start()
    return engine
