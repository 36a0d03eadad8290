"""`ProcessServer`: the loop of a process that forks others on request.

It has one thread and never uses a GPU. As the parent of the processes it learns how each one ended.
When the driver ends, for any reason, it kills all of them and exits. `fork_server` forks workers of
an engine, `program_server` forks programs.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable

from syncline import system
from syncline.core.embedded import fork_server_messages
from syncline.core.embedded.fork_server_messages import WorkerEnded, WorkerStarted
from syncline.core.host import kill_group

Program = Callable[[], None]
"""The work of a forked process that has left the loop."""


def import_if_possible(name: str) -> None:
    """Import a module; the process that needs it reports an error."""
    try:
        importlib.import_module(name)
    except Exception:
        pass


class ProcessServer(ABC):
    """Handles requests and dead processes until the driver ends.

    Args:
        connection: The driver's connection.
        idle_work: Modules to import when there is nothing else to do.
    """

    def __init__(self, connection: socket.socket, idle_work: Iterable[str] = ()) -> None:
        self.connection = connection
        self.idle_work = deque(idle_work)
        self._processes: dict[int, int] = {}  # pid -> number
        self._wake_read, self._wake_write = system.nonblocking_pipe()

    @abstractmethod
    def handle(self, message: object, fds: list[int]) -> Program | None:
        """Handle a request; in a forked process, return its work, which ends the loop there."""

    @abstractmethod
    def leaves_processes(self, status: int) -> bool:
        """Return True if the children of an ended process may continue."""

    @abstractmethod
    def end(self) -> None:
        """Clean up after all processes have ended."""

    def import_modules(self, modules: Iterable[str]) -> None:
        """Import modules while nothing else is to be done."""
        for name in modules:
            import_if_possible(name)

    def serve(self) -> Program | None:
        """Serve until the driver ends, and return None; return its work in a forked process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # sent to all processes of a job as notice of termination; workers run until the driver ends
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        poller = select.poll()
        for fd in (self.connection.fileno(), self._wake_read):
            poller.register(fd, select.POLLIN | select.POLLHUP)
        while True:
            readable = {fd for fd, _ in poller.poll(0 if self.idle_work else None)}
            if not readable:
                self.import_modules([self.idle_work.popleft()])
            if self._wake_read in readable:
                os.read(self._wake_read, 4096)
                self._reap()
            if self.connection.fileno() in readable:
                try:
                    received = fork_server_messages.receive(self.connection)
                except ConnectionError:
                    received = None
                if received is None:
                    break
                program = self.handle(*received)
                if program is not None:
                    return program
        self._kill_all()
        self.end()
        return None

    def started(self, pid: int, number: int, fds: Iterable[int]) -> None:
        """Record a new process, close its descriptors here, and notify the driver."""
        for fd in fds:
            os.close(fd)
        self._processes[pid] = number
        self._send(WorkerStarted(number=number, pid=pid))

    def leave(self) -> None:
        """Undo the set-up of the loop in a forked process."""
        gc.enable()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.connection.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self._processes.pop(pid, None)
            if number is not None:
                if not self.leaves_processes(status):
                    kill_group(pid)
                self._send(
                    WorkerEnded(
                        number=number, pid=pid, status=status, peak_bytes=usage.ru_maxrss * 1024
                    )
                )

    def _send(self, message: object) -> None:
        try:
            fork_server_messages.send(self.connection, message)
        except OSError:
            pass  # the driver is gone; the loop detects that next

    def _kill_all(self) -> None:
        for pid in self._processes:
            kill_group(pid)
            try:  # it may not lead its group yet
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for pid in self._processes:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                continue
