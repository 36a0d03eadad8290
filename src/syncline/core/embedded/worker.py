"""A worker process: from the fork to the end.

Fork -> `run` -> `Executor.serve` in the main thread, which reads the channel itself while it has nothing to do. What tasks and calls
do is in `executor`; how an actor's calls share threads or an event loop is in `calls`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys

from syncline.core import refs, runtime_env
from syncline.core.embedded import child_processes, interrupts, stacks
from syncline.core.embedded import messages as m
from syncline.core.embedded.channel import Channel
from syncline.core.embedded.engine import EmbeddedEngine, SessionFacts
from syncline.core.embedded.executor import Executor
from syncline.core.embedded.link import RemoteLink
from syncline.core.embedded.pump import Pump
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.session import SessionPaths, remove_if_abandoned
from syncline.core.embedded.template_messages import StartWorker
from syncline.exceptions import RuntimeEnvSetupError


def run(fds: list[int], start: StartWorker, paths: SessionPaths) -> None:
    """Be a worker until the hub lets it go. `fds`: its channel, its stdout, its stderr."""
    _become_a_process_of_its_own(fds, start.cwd)
    environment = json.loads(start.environment) if start.environment else {}
    failure: Exception | None = None
    try:
        runtime_env.apply(environment)
    except Exception as error:
        failure = RuntimeEnvSetupError(
            f"A worker could not set up runtime_env={environment}: {error}"
        )
    channel = Channel(socket.socket(fileno=fds[0]))
    reactor = Reactor()
    pump = Pump(reactor, name="syncline-pump", tend=lambda: executor.tend())
    link = RemoteLink(channel, pump, reactor)
    executor = Executor(link, start.number, failure)
    link.accept_work = executor.accept
    link.before_wait = executor.take_back
    link.on_closed = lambda: _die(paths)
    facts = SessionFacts(
        session_id=paths.id,
        directory=paths.directory,
        namespace=start.namespace,
        node_id=start.node_id,
    )
    engine = EmbeddedEngine(
        link,
        facts,
        start.number,
        environment=environment,
        end=_stay_connected,
        abandon=lambda: _abandon(channel, reactor),
        leave=executor.leave_actor,
    )
    executor.new_id = engine.new_id
    engine.process_work = lambda: executor.work
    refs.set_engine(engine)
    child_processes.announce(facts)
    interrupts.install(previous=executor.on_interrupt)
    stacks.offer()
    pump.start()
    link.send((m.READY,))
    executor.serve()


def _abandon(channel: Channel, reactor: Reactor) -> None:
    """In a forked child: close what belongs to the parent, so that the hub sees the parent's
    end.
    """
    channel.close()
    reactor.close()
    interrupts.reset_after_fork()


def _become_a_process_of_its_own(fds: list[int], cwd: str) -> None:
    try:
        os.setpgid(0, 0)
    except PermissionError:
        pass  # a spawned worker leads its group already
    for fd, target in ((fds[1], 1), (fds[2], 2)):
        os.dup2(fd, target)
        os.close(fd)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        os.chdir(cwd)
    except OSError:
        pass  # it was removed since; tasks that need it will say so
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _die(paths: SessionPaths) -> None:
    """The hub is gone, so nothing that this process does can reach anybody: end it, what it
    started, and what is left of the session.
    """
    remove_if_abandoned(paths)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _stay_connected() -> None:
    """`shutdown()` in a worker does nothing: the session is the driver's."""
