"""The template: a process that has imported what workers need, and becomes one of them whenever it
is asked to (by `fork`).

It has one thread and never touches a GPU. It is the parent of all workers, so it knows how each
ended, and it ends what a dead worker left running. When the driver goes, however it goes, the
template kills every worker, removes the session's files and ends.
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
from multiprocessing import resource_tracker

from syncline import settings
from syncline.core.embedded import template_messages as messages
from syncline.core.embedded import worker
from syncline.core.embedded.session import remove_directories
from syncline.core.embedded.template_messages import (
    Preload,
    StartWorker,
    TemplateFacts,
    WorkerEnded,
    WorkerStarted,
)

SPAWN_CODE = "import sys; sys.path[:] = {path!r}; from syncline.core.embedded.template import run_spawned; run_spawned({arguments!r})"


def main(fd: int) -> None:
    """Serve the driver at the other end of `fd` until it is gone."""
    connection = socket.socket(fileno=fd)
    connection.set_inheritable(False)
    received = messages.receive(connection)
    if received is None:
        return
    Template(connection, received[0]).serve()


class Template:
    """The template's loop."""

    def __init__(self, connection: socket.socket, facts: TemplateFacts) -> None:
        self._connection = connection
        self._facts = facts
        self._workers: dict[int, int] = {}  # pid -> number
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Handle requests and deaths; returns in the template when the driver is gone, and never in
        a worker.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(
            signal.SIGTERM, signal.SIG_IGN
        )  # sent to all processes of a job as notice: workers need it until the driver ends
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        poller = select.poll()
        for fd in (self._connection.fileno(), self._wake_read):
            poller.register(fd, select.POLLIN | select.POLLHUP)
        while True:
            readable = {fd for fd, _ in poller.poll()}
            if self._wake_read in readable:
                os.read(self._wake_read, 4096)
                self._reap()
            if self._connection.fileno() in readable:
                try:
                    received = messages.receive(self._connection)
                except ConnectionError:
                    received = None
                if received is None:
                    break
                message, fds = received
                if isinstance(message, Preload):
                    self._preload(message)
                elif isinstance(message, StartWorker):
                    self._start(message, fds)
        self._end()

    def _preload(self, message: Preload) -> None:
        for entry in message.sys_path:
            if entry not in sys.path:
                sys.path.append(entry)
        for name in message.modules:
            try:
                importlib.import_module(name)
            except Exception:  # the worker that needs it will say what is wrong
                continue
        if "numpy" in sys.modules:
            # Every worker seeds it, and numpy loads it when it is first asked for.
            importlib.import_module("numpy.random")
        if "torch" in sys.modules:
            resource_tracker.ensure_running()  # one for all workers: it outlives each, and cleans up after them
        gc.collect()
        gc.freeze()

    def _start(self, message: StartWorker, fds: list[int]) -> None:
        if threading.active_count() > 1 or self._facts.spawn:
            pid = self._spawn(message, fds)
        else:
            pid = os.fork()
            if pid == 0:
                self._become_worker(message, fds)
        try:
            os.setpgid(pid, pid)
        except OSError:
            pass  # it has done so itself, or is dead already
        for fd in fds:
            os.close(fd)
        self._workers[pid] = message.number
        self._say(WorkerStarted(number=message.number, pid=pid))

    def _become_worker(self, message: StartWorker, fds: list[int]) -> None:
        """In the forked child: never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            self._connection.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            worker.run(fds, message, self._facts.paths)
            code = 0
        finally:
            os._exit(code)

    def _spawn(self, message: StartWorker, fds: list[int]) -> int:
        for fd in fds:
            os.set_inheritable(fd, True)
        arguments = pickle.dumps((fds, message, self._facts.paths))
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
                _kill_group(pid)  # what it started and left
                self._say(
                    WorkerEnded(
                        number=number, pid=pid, status=status, peak_bytes=usage.ru_maxrss * 1024
                    )
                )

    def _say(self, message: object) -> None:
        try:
            messages.send(self._connection, message)
        except OSError:
            pass  # the driver is gone: the loop is about to notice

    def _end(self) -> None:
        for pid in self._workers:
            _kill_group(pid)
        for pid in self._workers:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                continue
        remove_directories(self._facts.paths)


def run_spawned(arguments: bytes) -> None:
    """Become a worker in a fresh interpreter; never returns."""
    code = 1
    try:
        fds, message, paths = pickle.loads(arguments)
        worker.run(fds, message, paths)
        code = 0
    finally:
        os._exit(code)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
