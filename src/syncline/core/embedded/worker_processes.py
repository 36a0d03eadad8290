"""The driver's side of the fork server: starting workers, their output, and their exit status."""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Callable
from functools import partial

from syncline.core import worker_imports
from syncline.core.embedded import fork_server_messages
from syncline.core.embedded.exit_status import SAMPLE_INTERVAL_S, ExitStatus, MemoryMonitor
from syncline.core.embedded.fork_server_messages import (
    ForkServerConfig,
    LaunchWorker,
    Preload,
    WorkerEnded,
    WorkerStarted,
)
from syncline.core.embedded.fork_server_process import ForkServerProcess
from syncline.core.embedded.log_display import Stream
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.worker_output import WorkerOutput
from syncline.core.host import kill_group
from syncline.records import dataclass

TORCH_MODULES = (
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "accelerate",
    "lightning.pytorch",
    "pytorch_lightning",
    "transformers.trainer",
    "syncline.train.torch",
    "syncline.train.lightning",
    "syncline.train.huggingface.transformers",
    "syncline.data.iterate.torch",
)
"""Modules that import torch, for about a second.

In a program that uses no library of syncline besides data, the fork server imports them for the
first worker that may use torch, or soon after the program has imported another library.
"""
HEAVY_MODULES = (
    "numpy",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    *TORCH_MODULES,
    "syncline.as_ray.imports",
    "syncline.util",
    "syncline.train",
    "syncline.train.workers.worker",
    "syncline.data.dataset",
    "syncline.data.execute.data_worker",
    "syncline.data.iterate.streaming_split",
    "syncline.data.iterate.split_coordinator",
    "syncline.tune.context",
    "syncline.tune.tune",
    "syncline.tune.workers.trial_runner",
    "fastapi",
    "syncline.serve.deployment",
)
"""Modules that workers get from the fork server, if the driver has imported them."""
FIRST_USE_MODULES = {
    "syncline.data.execute.data_worker": "pandas",
    "syncline.serve.deployment": "syncline.serve.controller.controller_thread",
}
"""Modules that the first use of another module imports.

pyarrow imports pandas, for a quarter of a second, when it makes its first column from an array,
which every worker of a dataset does. Programs that use serve do not import the modules of its
processes.
"""
NEXT_MODULES = {
    "syncline.serve.controller.controller_thread": (
        "syncline.serve.proxy.process",
        "syncline.serve.replica.process",
    )
}
"""Modules that the fork server imports, as soon as it is idle, after the ones before them.

The first worker, which does not need them, starts meanwhile.
"""
LATER_MODULES = ("torch._dynamo",)
"""Modules that the fork server imports after the first workers have started.

torch imports them for the first optimizer, for about a second. The first workers start without
waiting for them, and their replacements have them. A `TorchTrainer` whose function trains a model
expects them (`core.worker_imports`), so that its first workers have them, too.
"""
LATER_S = 3.0
MAX_FAILED_STARTS = 5
"""Deaths of fork servers, without a worker started in between, after which starts are given up."""
_READ_BYTES = 65_536
OUTPUT_PAUSE_S = 0.004
"""Seconds between two reads of a pipe; until then it holds 64 kB."""
LAST_READS = 64
"""Reads of a dead worker's pipe; a process that it left behind may write without end."""


@dataclass(frozen=True, kw_only=True)
class ProcessStatistics:
    """Counters of worker processes."""

    workers: int
    started: int
    """Workers started since the beginning."""
    fork_servers: int
    """Fork servers started; more than one only if one was killed."""


@dataclass(slots=True, eq=False)
class _Pipe:
    """Standard output or standard error of a worker."""

    number: int
    stream: Stream
    pauses: bool = False
    """True while the reactor does not watch it."""


class WorkerProcesses:
    """Starts and ends workers. Called under the hub's lock, except the reactor's handlers."""

    def __init__(
        self,
        config: ForkServerConfig,
        reactor: Reactor,
        output: WorkerOutput,
        *,
        on_started: Callable[[int, int], None],
        on_ended: Callable[[int, ExitStatus], None],
    ) -> None:
        """The callbacks get (number, pid) and (number, exit status).

        They are called on the reactor's thread without the hub's lock.
        """
        self._config = config
        self._reactor = reactor
        self._output = output
        self._on_started = on_started
        self._on_ended = on_ended
        self._fork_server: ForkServerProcess | None = None
        self._preloaded: set[str] = set()
        self._awaits_library = False
        self._unconfirmed: dict[int, tuple[LaunchWorker, tuple[int, ...]]] = {}
        self._failed_starts = 0  # deaths of fork servers since one has started a worker
        self._pids: dict[int, int] = {}
        self._pipes: dict[int, _Pipe] = {}  # by fd
        self._started = 0
        self._fork_servers = 0
        self._closed = False
        self._memory = MemoryMonitor()

    @property
    def statistics(self) -> ProcessStatistics:
        """Current counters."""
        return ProcessStatistics(
            workers=len(self._pids), started=self._started, fork_servers=self._fork_servers
        )

    @property
    def fork_server_pid(self) -> int | None:
        """Process id of the fork server."""
        return self._fork_server.process.pid if self._fork_server is not None else None

    def use_fork_server(self, fork_server: ForkServerProcess) -> None:
        """Use a new fork server, which imports this process's heavy modules in parallel."""
        self._fork_server = fork_server
        self._fork_servers += 1
        self._preloaded.clear()
        self._try_send(self._config, ())
        self._reactor.register(fork_server.connection.fileno(), self._on_fork_server)
        self._preload(with_torch=not _uses_only_data())
        if self._fork_servers == 1:
            self._sample_memory()

    @property
    def starts_without_torch(self) -> bool:
        """True if the program has imported torch and its workers may not need it."""
        return "torch" in sys.modules and "torch" not in self._preloaded and _uses_only_data()

    def start(self, number: int, environment: str) -> socket.socket:
        """Start a worker; return the driver's end of its channel."""
        self._preload(with_torch=worker_imports.may_use_torch() or not _uses_only_data())
        ours, theirs = socket.socketpair()
        pipes = [os.pipe(), os.pipe()]
        streams: tuple[Stream, Stream] = ("out", "err")
        for (read, _), stream in zip(pipes, streams, strict=True):
            os.set_blocking(read, False)
            self._pipes[read] = _Pipe(number=number, stream=stream)
            self._reactor.register(read, partial(self._on_output, read))
        message = LaunchWorker(number=number, environment=environment, cwd=_working_directory())
        fds = (theirs.detach(), pipes[0][1], pipes[1][1])
        self._unconfirmed[number] = (message, fds)
        if "torch" in self._preloaded and self._preloaded.isdisjoint(LATER_MODULES):
            self._preloaded.update(LATER_MODULES)
            self._reactor.call_later(LATER_S, self._preload_later)
        if _uses_only_data() and not self._awaits_library:
            self._awaits_library = True
            self._reactor.call_later(LATER_S, self._await_library)
        self._started += 1
        self._try_send(message, fds)
        self._preload_next()
        return ours

    def read_output(self) -> None:
        """Read what all workers have written so far. Called on the reactor's thread."""
        for fd in list(self._pipes):
            self._read(fd)

    def kill(self, number: int) -> None:
        """Kill a worker and its children, if it lives. Needs no lock."""
        pid = self._pids.get(number)
        if pid is not None:
            kill_group(pid)

    def close(self) -> None:
        """Kill all workers, end the fork server, and wait for them."""
        self._closed = True
        worker_imports.forget()
        self._memory.close()
        for pid in self._pids.values():
            kill_group(pid)
        if self._fork_server is not None:
            self._reactor.unregister(self._fork_server.connection.fileno())
            self._fork_server.close()
        for _, fds in self._unconfirmed.values():
            _close_all(fds)
        for fd in list(self._pipes):
            self._drain(fd)

    def abandon(self) -> None:
        """Close the inherited descriptors in a forked child of the driver; end nothing."""
        self._closed = True
        self._memory.close()
        for fd in self._pipes:
            os.close(fd)
        if self._fork_server is not None:
            self._fork_server.connection.close()
            self._fork_server.process.returncode = 0  # not a child of this process

    def _preload(self, *, with_torch: bool) -> None:
        """Send the names of newly imported heavy modules to the fork server."""
        imported = [
            name
            for name in HEAVY_MODULES
            if name in sys.modules and (with_torch or name not in TORCH_MODULES)
        ]
        imported += [first for name, first in FIRST_USE_MODULES.items() if name in imported]
        imported += worker_imports.expected()
        wanted = tuple(name for name in imported if name not in self._preloaded)
        if wanted:
            self._preloaded.update(wanted)
            self._try_send(Preload(modules=wanted, sys_path=tuple(sys.path)), ())

    def _preload_next(self) -> None:
        for before, names in NEXT_MODULES.items():
            if before in self._preloaded and self._preloaded.isdisjoint(names):
                self._preloaded.update(names)
                self._try_send(Preload(modules=names, sys_path=tuple(sys.path), when_idle=True), ())

    def _sample_memory(self) -> None:
        if not self._closed:
            self._memory.sample()
            self._reactor.call_later(SAMPLE_INTERVAL_S, self._sample_memory)

    def _preload_later(self) -> None:
        if not self._closed:
            self._try_send(
                Preload(modules=LATER_MODULES, sys_path=tuple(sys.path), when_idle=True), ()
            )

    def _await_library(self) -> None:
        """Preload torch soon after the program has imported another library than data."""
        if self._closed:
            return
        if _uses_only_data():
            self._reactor.call_later(LATER_S, self._await_library)
        else:
            self._preload(with_torch=True)

    def _try_send(self, message: object, fds: tuple[int, ...]) -> None:
        if self._fork_server is None:
            return
        try:
            fork_server_messages.send(self._fork_server.connection, message, fds)
        except OSError:
            pass  # dead: `_on_fork_server` starts another and repeats unconfirmed messages

    def _on_fork_server(self, _: int) -> None:
        assert self._fork_server is not None
        try:
            received = fork_server_messages.receive(self._fork_server.connection)
        except ConnectionError:
            received = None
        if received is None:
            self._replace_fork_server()
            return
        message = received[0]
        if isinstance(message, WorkerStarted):
            self._failed_starts = 0
            self._pids[message.number] = message.pid
            _close_all(self._unconfirmed.pop(message.number)[1])
            self._on_started(message.number, message.pid)
        elif isinstance(message, WorkerEnded):
            self.forget(message.number)
            status = self._memory.exit_status(
                os.waitstatus_to_exitcode(message.status), message.peak_bytes, message.pid
            )
            self._on_ended(message.number, status)

    def forget(self, number: int) -> None:
        """Read the last output of a dead worker and close its pipes."""
        self._pids.pop(number, None)
        for fd in [fd for fd, pipe in self._pipes.items() if pipe.number == number]:
            self._drain(fd)

    def _replace_fork_server(self) -> None:
        dead, self._fork_server = self._fork_server, None
        assert dead is not None
        self._reactor.unregister(dead.connection.fileno())
        if self._closed:
            dead.connection.close()
            return
        dead.close()
        self._failed_starts += 1
        if self._failed_starts >= MAX_FAILED_STARTS:
            self._give_up_starts(dead.process.returncode)
        self.use_fork_server(ForkServerProcess.start())
        for start, fds in self._unconfirmed.values():
            self._try_send(start, fds)

    def _give_up_starts(self, code: int) -> None:
        """Report workers as ended that no fork server has lived long enough to start."""
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        status = ExitStatus(
            cause=f"could not be started, because the process that starts workers ended "
            f"{self._failed_starts} times in a row, the last time with {how}; its errors are above"
        )
        given_up, self._unconfirmed = self._unconfirmed, {}
        for number, (_, fds) in given_up.items():
            _close_all(fds)
            self.forget(number)
            self._on_ended(number, status)

    def _on_output(self, fd: int, _: int) -> None:
        """Read a pipe, and not again for a moment, so that many lines are handled together."""
        self._read_once(fd)
        pipe = self._pipes.get(fd)
        if pipe is not None:
            self._reactor.unregister(fd)
            pipe.pauses = True
            self._reactor.call_later(OUTPUT_PAUSE_S, partial(self._resume, fd, pipe))

    def _resume(self, fd: int, pipe: _Pipe) -> None:
        if self._pipes.get(fd) is pipe:  # the number may be that of another pipe by now
            pipe.pauses = False
            self._reactor.register(fd, partial(self._on_output, fd))

    def _read_once(self, fd: int) -> None:
        pipe = self._pipes[fd]
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._output.feed(pipe.number, pipe.stream, data)
        else:
            self._close_pipe(fd)

    def _drain(self, fd: int) -> None:
        """Read the rest of a pipe and close it, even if a child of the worker has its other end."""
        self._read(fd)
        self._close_pipe(fd)

    def _read(self, fd: int) -> None:
        for _ in range(LAST_READS):
            if fd not in self._pipes or not _readable(fd):
                break
            self._read_once(fd)

    def _close_pipe(self, fd: int) -> None:
        pipe = self._pipes.pop(fd, None)
        if pipe is not None:
            if not pipe.pauses:
                self._reactor.unregister(fd)
            os.close(fd)


def _uses_only_data() -> bool:
    """Return True if the program has imported no library of syncline besides data."""
    others = (
        name
        for name in HEAVY_MODULES
        if name.startswith("syncline.") and not name.startswith("syncline.data.")
    )
    return "syncline.data" in sys.modules and not any(name in sys.modules for name in others)


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
    except FileNotFoundError:  # removed while the program runs
        return "/"
