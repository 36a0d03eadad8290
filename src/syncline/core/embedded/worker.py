"""A worker process, from the fork to its exit.

`run` sets the process up; then `Executor.serve` runs in the main thread, which reads the channel
itself while it is idle. `executor` runs tasks; `actor_executor` runs an actor's calls.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

from syncline.core import random_states, runtime_env
from syncline.core.debugger import WorkerDebugger
from syncline.core.embedded import child_processes, interrupts, stack_dump
from syncline.core.embedded import messages as m
from syncline.core.embedded.channel import Channel
from syncline.core.embedded.engine import EmbeddedEngine
from syncline.core.embedded.executor import Executor
from syncline.core.embedded.fork_server_messages import ForkServerConfig, LaunchWorker
from syncline.core.embedded.hub_connection import RemoteHubConnection
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.session_directories import SessionPaths, remove_if_abandoned
from syncline.core.embedded.shared_reactor import SharedReactor
from syncline.core.engine import set_engine
from syncline.exceptions import RuntimeEnvSetupError


def run(
    fds: list[int], start: LaunchWorker, config: ForkServerConfig, failure: Exception | None = None
) -> None:
    """Be a worker until the hub stops it.

    Args:
        fds: Its channel, its stdout, its stderr.
        start: The request.
        config: The configuration of the fork server.
        failure: Error of the worker's environment; every task then fails with it.
    """
    _set_up_process(fds, start.cwd)
    environment = json.loads(start.environment) if start.environment else {}
    try:
        runtime_env.apply(environment)
    except Exception as error:
        failure = RuntimeEnvSetupError(
            f"A worker could not set up runtime_env={environment}: {error}"
        )
    channel = Channel(socket.socket(fileno=fds[0]))
    reactor = Reactor()
    shared_reactor = SharedReactor(
        reactor, name="syncline-reactor", on_idle=lambda: executor.on_idle()
    )
    connection = RemoteHubConnection(channel, shared_reactor, reactor)
    connection.on_closed = lambda: _kill_session(config.paths)
    engine = EmbeddedEngine(
        connection,
        config.session,
        start.number,
        environment=environment,
        end=lambda: None,  # `shutdown()` in a worker must not end the driver's session
        abandon=lambda: _abandon(channel, reactor),
    )
    executor = Executor(connection, engine.new_id, failure, engine.cancelled_calls)
    connection.accept_work = executor.accept
    connection.before_wait = executor.return_unstarted
    engine.process_context = lambda: executor.context
    set_engine(engine)
    WorkerDebugger(
        Path(config.session.directory),
        label=lambda: engine.output_label or executor.context.name,
        announce=engine.debugger_waits,
    ).install()
    child_processes.announce(config.session)
    interrupts.install(previous=executor.on_interrupt)
    stack_dump.register(Path(config.session.directory))
    shared_reactor.start()
    connection.send((m.WORKER_READY,))
    executor.serve()


def _abandon(channel: Channel, reactor: Reactor) -> None:
    """Close the parent's descriptors in a forked child; the hub then detects the parent's end."""
    channel.close()
    reactor.close()
    interrupts.reset_after_fork()


def _set_up_process(fds: list[int], cwd: str) -> None:
    try:
        os.setpgid(0, 0)
    except PermissionError:
        pass  # a spawned worker already leads a group
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
        pass  # removed meanwhile; tasks that need it report an error
    random_states.seed_anew()


def _kill_session(paths: SessionPaths) -> None:
    """Kill this process and its children after the hub is gone, and remove the session's files."""
    remove_if_abandoned(paths)
    os.killpg(os.getpgrp(), signal.SIGKILL)
