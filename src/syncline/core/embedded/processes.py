"""The driver's side of the template: starting workers, reading what they print, learning how they
ended.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from syncline import settings
from syncline.core.embedded import template_messages as messages
from syncline.core.embedded.endings import LOOK_EVERY_S, Ending, MemoryWatch
from syncline.core.embedded.logs import Stream
from syncline.core.embedded.output import Output
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.template_messages import (
    Preload,
    StartWorker,
    TemplateFacts,
    WorkerEnded,
    WorkerStarted,
)

HEAVY_MODULES = (
    "numpy",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "accelerate",
    "lightning.pytorch",
    "pytorch_lightning",
    "transformers.trainer",
    "syncline.util",
    "syncline.train",
    "syncline.train.torch",
    "syncline.train.lightning",
    "syncline.train.huggingface.transformers",
    "syncline.train.workers.worker",
    "syncline.data.dataset",
    "syncline.data.execute.worker",
    "syncline.data.iterate.torch",
    "syncline.data.split.consumer",
    "syncline.data.split.coordinator",
    "syncline.tune.context",
    "syncline.tune.tune",
    "syncline.tune.workers.runner",
)
"""Modules that workers get from the template, if the driver has imported them."""
FIRST_USE_MODULES = {"syncline.data.execute.worker": "pandas"}
"""What the first use of a module imports, whether the driver has done so or not: pyarrow looks for
pandas, for a quarter of a second, when it makes its first column of an array, as every worker of a
dataset does.
"""
LATER_MODULES = ("torch._dynamo",)
"""What torch imports when the first optimizer is made, for about a second. The template does so
when the first workers are at work, so that they start without waiting for it, and those that
replace them have it.
"""
LATER_S = 3.0
_READ_BYTES = 65_536
LAST_READS = 64
"""How often the pipe of a dead worker is read: a process that it left behind may go on writing for
ever.
"""


@dataclass(frozen=True, kw_only=True)
class ProcessStatistics:
    """Processes of this session."""

    workers: int
    started: int
    """Workers started so far."""
    templates: int
    """Templates started so far: one, unless somebody killed it."""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """What the hub wants to know, each called on the thread that turns the reactor, without the
    hub's lock.
    """

    on_started: Callable[[int, int], None]
    """(number, pid)"""
    on_ended: Callable[[int, Ending], None]
    """(number, how it ended)"""


class Processes:
    """Makes and ends workers. Called under the hub's lock, but for the reactor's handlers."""

    def __init__(
        self,
        facts: TemplateFacts,
        reactor: Reactor,
        output: Output,
        listener: Listener,
        interpreter_path: list[str],
    ) -> None:
        self._facts = facts
        self._reactor = reactor
        self._output = output
        self._listener = listener
        self._path = interpreter_path
        self._connection: socket.socket | None = None
        self._template: subprocess.Popen[bytes] | None = None
        self._preloaded: set[str] = set()
        self._unconfirmed: dict[int, tuple[StartWorker, tuple[int, ...]]] = {}
        self._pids: dict[int, int] = {}
        self._pipes: dict[int, int] = {}  # fd -> worker
        self._started = 0
        self._templates = 0
        self._closed = False
        self._memory = MemoryWatch()

    @property
    def statistics(self) -> ProcessStatistics:
        """How many there are, and were."""
        return ProcessStatistics(
            workers=len(self._pids), started=self._started, templates=self._templates
        )

    @property
    def template_pid(self) -> int | None:
        """The template's process."""
        return self._template.pid if self._template is not None else None

    def start_template(self) -> None:
        """Start the template; it imports the heavy modules that this process has imported, while
        the program goes on.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = f"import sys; sys.path[:] = {self._path!r}; from syncline.core.embedded.template import main; main({theirs.fileno()})"
        self._template = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=settings.inherited_environment(),
        )
        theirs.close()
        self._connection = ours
        self._templates += 1
        self._preloaded.clear()
        messages.send(ours, self._facts)
        self._reactor.register(ours.fileno(), self._on_template)
        self._preload()
        if self._templates == 1:
            self._look_at_memory()

    def start(self, number: int, environment: str) -> socket.socket:
        """Begin to make a worker; the driver's end of its channel."""
        self._preload()
        ours, theirs = socket.socketpair()
        pipes = [os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)]
        streams: tuple[Stream, Stream] = ("out", "err")
        for (read, _), stream in zip(pipes, streams, strict=True):
            os.set_blocking(read, False)
            self._pipes[read] = number
            self._reactor.register(read, self._reader(read, number, stream))
        message = StartWorker(
            number=number,
            environment=environment,
            cwd=_working_directory(),
            namespace=self._facts.namespace,
            node_id=self._facts.node_id,
        )
        fds = (theirs.detach(), pipes[0][1], pipes[1][1])
        self._unconfirmed[number] = (message, fds)
        if "torch" in self._preloaded and self._preloaded.isdisjoint(LATER_MODULES):
            self._preloaded.update(LATER_MODULES)
            self._reactor.call_later(LATER_S, self._preload_later)
        self._started += 1
        self._send_start(message, fds)
        return ours

    def kill(self, number: int) -> None:
        """End a worker and what it started, at once."""
        pid = self._pids.get(number)
        if pid is not None:
            kill_group(pid)

    def close(self) -> None:
        """End every worker and the template; returns when they are gone."""
        self._closed = True
        for pid in self._pids.values():
            kill_group(pid)
        if self._connection is not None:
            self._reactor.unregister(self._connection.fileno())
            self._connection.close()
        if self._template is not None:
            try:
                self._template.wait(timeout=5)
            except subprocess.TimeoutExpired:  # busy with an import
                self._template.kill()
                self._template.wait()
        for _, fds in self._unconfirmed.values():
            _close_all(fds)
        for fd in list(self._pipes):
            self._drain(fd)

    def abandon(self) -> None:
        """In a forked child of the driver: close what it inherited, end nothing."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()
        for fd in self._pipes:
            os.close(fd)
        if self._template is not None:
            self._template.returncode = 0  # it is not ours to wait for

    def _preload(self) -> None:
        """Tell the template of heavy modules that the program has imported since."""
        imported = [name for name in HEAVY_MODULES if name in sys.modules]
        imported += [first for name, first in FIRST_USE_MODULES.items() if name in imported]
        wanted = tuple(name for name in imported if name not in self._preloaded)
        if wanted and self._connection is not None:
            self._preloaded.update(wanted)
            self._try_send(Preload(modules=wanted, sys_path=tuple(sys.path)), ())

    def _look_at_memory(self) -> None:
        if not self._closed:
            self._memory.look()
            self._reactor.call_later(LOOK_EVERY_S, self._look_at_memory)

    def _preload_later(self) -> None:
        if self._connection is not None and not self._closed:
            self._try_send(Preload(modules=LATER_MODULES, sys_path=tuple(sys.path)), ())

    def _send_start(self, message: StartWorker, fds: tuple[int, ...]) -> None:
        if self._connection is not None:
            self._try_send(message, fds)

    def _try_send(self, message: object, fds: tuple[int, ...]) -> None:
        assert self._connection is not None
        try:
            messages.send(self._connection, message, fds)
        except OSError:
            pass  # the template is dead: `_on_template` starts another and sends again what is unconfirmed

    def _on_template(self, _: int) -> None:
        assert self._connection is not None
        try:
            received = messages.receive(self._connection)
        except ConnectionError:
            received = None
        if received is None:
            self._replace_template()
            return
        message = received[0]
        if isinstance(message, WorkerStarted):
            self._pids[message.number] = message.pid
            _close_all(self._unconfirmed.pop(message.number)[1])
            self._listener.on_started(message.number, message.pid)
        elif isinstance(message, WorkerEnded):
            self.forget(message.number)
            ending = self._memory.ending(
                os.waitstatus_to_exitcode(message.status), message.peak_bytes
            )
            self._listener.on_ended(message.number, ending)

    def forget(self, number: int) -> None:
        """The worker is gone: read the last that it printed."""
        self._pids.pop(number, None)
        for fd in [fd for fd, owner in self._pipes.items() if owner == number]:
            self._drain(fd)

    def _replace_template(self) -> None:
        assert self._connection is not None
        self._reactor.unregister(self._connection.fileno())
        self._connection.close()
        self._connection = None
        if self._closed:
            return
        if self._template is not None:
            self._template.wait()
        self.start_template()
        for start, fds in self._unconfirmed.values():
            self._send_start(start, fds)

    def _reader(self, fd: int, number: int, stream: Stream) -> Callable[[int], None]:
        def read(_: int) -> None:
            try:
                data = os.read(fd, _READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                self._output.feed(number, stream, data)
            else:
                self._close_pipe(fd)

        return read

    def _drain(self, fd: int) -> None:
        """Read what is left in a pipe and close it, even if a process that outlived its worker
        holds the other end.
        """
        read = self._reactor.handler(fd)
        for _ in range(LAST_READS):
            if fd not in self._pipes or not _readable(fd):
                break
            read(0)
        self._close_pipe(fd)

    def _close_pipe(self, fd: int) -> None:
        if self._pipes.pop(fd, None) is not None:
            self._reactor.unregister(fd)
            os.close(fd)


def kill_group(pid: int) -> None:
    """SIGKILL a worker and everything in its process group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _readable(fd: int) -> bool:
    poller = select.poll()  # `select` takes no descriptor above 1023
    poller.register(fd, select.POLLIN | select.POLLHUP)
    return bool(poller.poll(0))


def _close_all(fds: tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # somebody removed it under the program
        return "/"
