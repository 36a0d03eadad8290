"""A fork server for programs: processes that are not workers of an engine.

The template, a process that has imported a library, forks a process for each program. The process
leaves the server's loop before it begins, so that nothing of the server is on its stack, and ends
as an interpreter does: threads are joined, exit functions called, objects finalized. A program is
a pickled function of the descriptors that were sent for it.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import pickle
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from syncline import settings, system
from syncline.core.embedded import fork_server_messages
from syncline.core.embedded.fork_server_messages import LaunchProgram
from syncline.core.embedded.process_server import ProcessServer, Program

Work = Callable[[list[int]], None]
"""The work of a program, called with its further descriptors."""
_SOURCE = str(Path(__file__).parents[3])
_CODE = (
    "import sys; sys.path[:] = [each for each in sys.path if each]; "
    "{source!r} in sys.path or sys.path.append({source!r}); "
    "from {module} import {function}; run = {function}({arguments}); run and run()"
)
_STANDARD_FDS = 3


def interpreter_code(function: str, *arguments: object, module: str = __name__) -> str:
    """Return the code that a new interpreter runs: it calls `function`, and then its result.

    The search path of modules is that of any program, without the working directory.
    """
    given = ", ".join(map(repr, arguments))
    return _CODE.format(source=_SOURCE, module=module, function=function, arguments=given)


def main(fd: int, modules: Sequence[str]) -> Program:
    """Import `modules`, then serve the driver at the other end of `fd` until it ends.

    Returns the work of a program in its process.
    """
    connection = socket.socket(fileno=fd)
    connection.set_inheritable(False)
    # Programs collect garbage, but not the objects that exist before they are forked.
    gc.disable()
    import_all(modules)
    return serve(connection)


def serve(connection: socket.socket) -> Program:
    """Serve a driver until it ends, then exit; return the work of a program in its process."""
    program = ProgramServer(connection).serve()
    if program is None:
        os._exit(0)  # without the time in which an interpreter frees a library
    return program


def import_all(modules: Iterable[str]) -> None:
    """Import modules. Print errors, because a second import of a library fails with another one."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:  # the program that needs it reports that
            continue
        except Exception:
            traceback.print_exc()


class ProgramServer(ProcessServer):
    """Starts programs."""

    def handle(self, message: object, fds: list[int]) -> Program | None:
        """Start a program; return its work in its process."""
        if not isinstance(message, LaunchProgram):
            return None
        if threading.active_count() > 1 or settings.start_method() == "spawn":
            pid = self._spawn(fds)
        else:
            gc.freeze()
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                self.leave()
                os.setsid()
                os.close(reader)
                os.close(writer)
                return take_over(fds)
            os.close(writer)
            os.read(reader, 1)  # until it leads its session, so that it can be signalled as a group
            os.close(reader)
        self.started(pid, message.number, fds)
        return None

    def leaves_processes(self, status: int) -> bool:
        """Return True for a program that succeeded, as if a shell had started it."""
        return status == 0

    def end(self) -> None:
        """Leave nothing behind: the server owns no files."""

    def _spawn(self, fds: list[int]) -> int:
        for fd in fds:
            os.set_inheritable(fd, True)
        code = interpreter_code("begin_spawned", fds)
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", code],
            settings.inherited_environment(),
            file_actions=[(os.POSIX_SPAWN_CLOSE, self.connection.fileno())],
        )


def begin_spawned(fds: list[int]) -> Program:
    """Return the work of a program that runs in a new interpreter."""
    os.setsid()
    return take_over(fds)


def take_over(fds: list[int]) -> Program:
    """Use the standard streams that were sent, and return the work."""
    payload, streams, others = fds[0], fds[1 : 1 + _STANDARD_FDS], fds[1 + _STANDARD_FDS :]
    for target, fd in enumerate(streams):
        os.dup2(fd, target)
        os.close(fd)
    with open(payload, "rb") as file:
        work: Work = pickle.load(file)
    return functools.partial(work, others)


def launch(
    connection: socket.socket,
    number: int,
    work: Work,
    streams: tuple[int, int, int],
    others: Iterable[int] = (),
) -> None:
    """Ask the server at the other end to start a program; it answers with `WorkerStarted`.

    Args:
        connection: The driver's connection.
        number: Number of the program in notices.
        work: Picklable function; its process imports the module that defines it.
        streams: Its stdin, stdout and stderr.
        others: Descriptors that it gets.
    """
    payload = system.anonymous_file("syncline-program")
    try:
        with open(payload, "wb", closefd=False) as file:
            pickle.dump(work, file, 5)
        os.lseek(payload, 0, os.SEEK_SET)
        message = LaunchProgram(number=number)
        fork_server_messages.send(connection, message, (payload, *streams, *others))
    finally:
        os.close(payload)
