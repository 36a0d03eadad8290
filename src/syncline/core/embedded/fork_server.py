"""The fork server: a process that has imported the workers' modules and forks workers on request.

It has one thread and never uses a GPU. As the parent of all workers it learns how each one ended,
and kills the processes that a dead worker left running. When the driver ends, for any reason, the
fork server kills every worker, removes the session's files and exits.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import select
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterable
from multiprocessing import resource_tracker

from syncline import settings
from syncline.core.embedded import early_start, fork_server_messages, worker
from syncline.core.embedded.fork_server_messages import (
    ForkServerConfig,
    LaunchWorker,
    Preload,
    WorkerEnded,
    WorkerStarted,
)
from syncline.core.embedded.session_directories import remove_directories
from syncline.core.host import kill_group

SPAWN_CODE = (
    "import sys; sys.path[:] = {path!r}; "
    "from syncline.core.embedded.fork_server import run_spawned; run_spawned({arguments!r})"
)


def main(fd: int, modules: Iterable[str] = ()) -> None:
    """Serve the driver at the other end of `fd` until the driver ends.

    Until the driver sends the configuration, import `modules` and those that the driver names.
    """
    connection = socket.socket(fileno=fd)
    connection.set_inheritable(False)
    early_start.disallow()
    # Workers collect garbage, but not the objects that exist before they are forked.
    gc.disable()
    early = deque(modules)
    poller = select.poll()
    poller.register(fd, select.POLLIN | select.POLLHUP)
    while True:
        if early and not poller.poll(0):
            _import(early.popleft())
            continue
        received = fork_server_messages.receive(connection)
        if received is None:
            return
        message = received[0]
        if isinstance(message, ForkServerConfig):
            break
        early.append(message)
    ForkServer(connection, message, early).serve()


def _import(name: str) -> None:
    """Import a module; the worker that needs it reports an error."""
    try:
        importlib.import_module(name)
    except Exception:
        pass


class ForkServer:
    """The loop of the fork server."""

    def __init__(
        self, connection: socket.socket, config: ForkServerConfig, modules: Iterable[str] = ()
    ) -> None:
        """`modules` are imported as soon as there is nothing else to do."""
        self._connection = connection
        self._config = config
        self._workers: dict[int, int] = {}  # pid -> number
        self._idle_work = deque(modules)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Handle requests and dead workers until the driver ends; never returns in a worker."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # sent to all processes of a job as notice of termination; workers run until the driver ends
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        sys.path[:] = self._config.sys_path
        poller = select.poll()
        for fd in (self._connection.fileno(), self._wake_read):
            poller.register(fd, select.POLLIN | select.POLLHUP)
        while True:
            readable = {fd for fd, _ in poller.poll(0 if self._idle_work else None)}
            if not readable:
                self._preload([self._idle_work.popleft()])
            if self._wake_read in readable:
                os.read(self._wake_read, 4096)
                self._reap()
            if self._connection.fileno() in readable:
                try:
                    received = fork_server_messages.receive(self._connection)
                except ConnectionError:
                    received = None
                if received is None:
                    break
                message, fds = received
                if isinstance(message, str):  # a module, see `ForkServerProcess.import_soon`
                    self._idle_work.append(message)
                elif isinstance(message, Preload):
                    self._extend_path(message)
                    if message.when_idle:
                        self._idle_work.extend(message.modules)
                    else:
                        self._preload(message.modules)
                elif isinstance(message, LaunchWorker):
                    self._start(message, fds)
        self._end()

    def _extend_path(self, message: Preload) -> None:
        for entry in message.sys_path:
            if entry not in sys.path:
                sys.path.append(entry)

    def _preload(self, modules: Iterable[str]) -> None:
        for name in modules:
            _import(name)
        if "numpy" in sys.modules:
            # Every worker seeds it; numpy loads it lazily.
            importlib.import_module("numpy.random")
        if "torch" in sys.modules:
            resource_tracker.ensure_running()  # one for all workers, because it outlives them

    def _start(self, message: LaunchWorker, fds: list[int]) -> None:
        if threading.active_count() > 1 or self._config.spawn:
            pid = self._spawn(message, fds)
        else:
            gc.freeze()
            pid = os.fork()
            if pid == 0:
                self._become_worker(message, fds)
        try:
            os.setpgid(pid, pid)
        except OSError:
            pass  # the worker has done so itself, or is dead already
        for fd in fds:
            os.close(fd)
        self._workers[pid] = message.number
        self._send(WorkerStarted(number=message.number, pid=pid))

    def _become_worker(self, message: LaunchWorker, fds: list[int]) -> None:
        """Run as a worker in the forked child; never returns."""
        code = 1
        try:
            gc.enable()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            self._connection.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            worker.run(fds, message, self._config)
            code = 0
        finally:
            os._exit(code)

    def _spawn(self, message: LaunchWorker, fds: list[int]) -> int:
        for fd in fds:
            os.set_inheritable(fd, True)
        arguments = pickle.dumps((fds, message, self._config))
        code = SPAWN_CODE.format(path=sys.path, arguments=arguments)
        closed = [(os.POSIX_SPAWN_CLOSE, self._connection.fileno())]
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", code],
            settings.inherited_environment(),
            file_actions=closed,
            setpgroup=0,
        )

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self._workers.pop(pid, None)
            if number is not None:
                kill_group(pid)  # processes that it left behind
                self._send(
                    WorkerEnded(
                        number=number, pid=pid, status=status, peak_bytes=usage.ru_maxrss * 1024
                    )
                )

    def _send(self, message: object) -> None:
        try:
            fork_server_messages.send(self._connection, message)
        except OSError:
            pass  # the driver is gone; the loop detects that next

    def _end(self) -> None:
        for pid in self._workers:
            kill_group(pid)
        for pid in self._workers:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                continue
        remove_directories(self._config.paths)


def run_spawned(arguments: bytes) -> None:
    """Run as a worker in a new interpreter; never returns."""
    code = 1
    try:
        worker.run(*pickle.loads(arguments))
        code = 0
    finally:
        os._exit(code)
