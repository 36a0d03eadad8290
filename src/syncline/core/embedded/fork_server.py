"""The fork server: a process that has imported the workers' modules and forks workers on request.

It kills the processes that a dead worker left running. When the driver ends, for any reason, it
kills every worker, removes the session's files and exits.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterable
from multiprocessing import resource_tracker

from syncline import settings
from syncline.core import packages
from syncline.core.embedded import early_start, fork_server_messages, worker
from syncline.core.embedded.fork_server_messages import ForkServerConfig, LaunchWorker, Preload
from syncline.core.embedded.process_server import ProcessServer, import_if_possible
from syncline.core.embedded.session_directories import remove_directories

SPAWN_CODE = (
    "import sys; sys.path[:] = {path!r}; from syncline.core.embedded.{entry}; run({arguments!r})"
)


def main(fd: int, modules: Iterable[str] = ()) -> None:
    """Serve the driver at the other end of `fd` until the driver ends.

    Until the driver sends the configuration, import `modules` and the modules named by the driver.
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
            import_if_possible(early.popleft())
            continue
        received = fork_server_messages.receive(connection)
        if received is None:
            return
        message = received[0]
        if isinstance(message, ForkServerConfig):
            break
        early.append(message)
    ForkServer(connection, message, early).serve()


class ForkServer(ProcessServer):
    """The loop of the fork server."""

    def __init__(
        self, connection: socket.socket, config: ForkServerConfig, modules: Iterable[str] = ()
    ) -> None:
        """`modules` are imported as soon as there is nothing else to do."""
        super().__init__(connection, modules)
        self._config = config
        sys.path[:] = config.sys_path

    def handle(self, message: object, fds: list[int]) -> None:
        """Import modules or start a worker; never returns in a worker."""
        if isinstance(message, str):  # a module, see `ForkServerProcess.import_soon`
            self.idle_work.append(message)
        elif isinstance(message, Preload):
            self._extend_path(message)
            if message.when_idle:
                self.idle_work.extend(message.modules)
            else:
                self.import_modules(message.modules)
        elif isinstance(message, LaunchWorker):
            self._start(message, fds)

    def leaves_processes(self, status: int) -> bool:
        """Return False: a worker's processes end with it."""
        return False

    def end(self) -> None:
        """Remove the session's files."""
        remove_directories(self._config.paths)

    def _extend_path(self, message: Preload) -> None:
        for entry in message.sys_path:
            if entry not in sys.path:
                sys.path.append(entry)

    def import_modules(self, modules: Iterable[str]) -> None:
        """Import modules, and what every worker needs of them."""
        super().import_modules(modules)
        if "numpy" in sys.modules:
            # Every worker seeds it; numpy loads it lazily.
            importlib.import_module("numpy.random")
        if "torch" in sys.modules:
            resource_tracker.ensure_running()  # one for all workers, because it outlives them

    def _start(self, message: LaunchWorker, fds: list[int]) -> None:
        if packages.are_needed(message.environment):
            pid = self._spawn(message, fds, "package_worker import run_installed as run")
        elif threading.active_count() > 1 or self._config.spawn:
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
        self.started(pid, message.number, fds)

    def _become_worker(self, message: LaunchWorker, fds: list[int]) -> None:
        """Run as a worker in the forked child; never returns."""
        code = 1
        try:
            self.leave()
            worker.run(fds, message, self._config)
            code = 0
        finally:
            os._exit(code)

    def _spawn(
        self,
        message: LaunchWorker,
        fds: list[int],
        entry: str = "fork_server import run_spawned as run",
    ) -> int:
        """Start a new interpreter, which calls `entry`."""
        for fd in fds:
            os.set_inheritable(fd, True)
        arguments = pickle.dumps((fds, message, self._config))
        code = SPAWN_CODE.format(path=sys.path, entry=entry, arguments=arguments)
        closed = [(os.POSIX_SPAWN_CLOSE, self.connection.fileno())]
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", code],
            settings.inherited_environment(),
            file_actions=closed,
            setpgroup=0,
        )


def run_spawned(arguments: bytes) -> None:
    """Run as a worker in a new interpreter; never returns."""
    code = 1
    try:
        worker.run(*pickle.loads(arguments))
        code = 0
    finally:
        os._exit(code)
