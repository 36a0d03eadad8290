"""`breakpoint()` in a worker: a pdb session over a socket in the session's directory.

The worker waits at the breakpoint until a terminal attaches: that of the program, if it is
interactive (`debug_terminal`), or `syncline debug`. Other workers continue. Only the user of the
program may enter the directory. `PYTHONBREAKPOINT` selects another debugger, as in any program.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from syncline import settings
from syncline.core.host import short_socket_path
from syncline.optional import deferred

if TYPE_CHECKING:
    import psutil
else:
    psutil = deferred("psutil")

if TYPE_CHECKING:
    from syncline.core.remote_pdb import RemotePdb

REMINDER_S = 60.0
"""Interval at which a waiting worker prints how to attach."""

listeners: list[Callable[[bool], None]] = []
"""Called with True when this process begins to wait in the debugger, with False at the end."""


class WorkerDebugger:
    """Breakpoints of one worker.

    Args:
        directory: Session directory.
        label: Returns the name of the worker for its user, such as "rank 0".
        announce: Tells the program that this worker waits, with the path of its socket.
    """

    def __init__(
        self, directory: Path, label: Callable[[], str], announce: Callable[[str], None]
    ) -> None:
        self._directory = directory
        self._label = label
        self._announce = announce
        self._name = f"debug-{os.getpid()}"
        self._lock = threading.Lock()  # a second thread waits for the end of the first session
        self._thread = 0  # the thread that has the session
        self._session: RemotePdb | None = None
        self._connection: socket.socket | None = None

    def install(self) -> None:
        """Make `breakpoint()` of this process open this debugger."""
        if not settings.environment("PYTHONBREAKPOINT"):
            sys.breakpointhook = self.on_breakpoint

    def on_breakpoint(self, *_: object, frame: FrameType | None = None, **__: object) -> None:
        """Wait for a terminal, then debug `frame`; None for the caller's."""
        frame = frame or sys._getframe().f_back
        assert frame is not None
        if self._session is not None and self._thread == threading.get_ident():
            self._session.set_trace(frame)  # stepping, or `c`, has reached another `breakpoint()`
            return
        # Loads pdb, which few workers need.
        from syncline.core.remote_pdb import RemotePdb, RemoteTerminal

        self._lock.acquire()
        for listener in listeners:
            listener(True)
        try:
            self._connection = self._wait_for_terminal(frame)
        except BaseException:  # the task was cancelled, or the disk is full
            self._release()
            raise
        self._thread = threading.get_ident()
        terminal = RemoteTerminal(self._connection)
        terminal.write(f"{self._label()} (pid={os.getpid()})\n")
        self._session = RemotePdb(terminal, self._end)
        self._session.set_trace(frame)

    def _wait_for_terminal(self, frame: FrameType) -> socket.socket:
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        waiting = {"pid": os.getpid(), "label": self._label(), "where": where}
        with socket.socket(socket.AF_UNIX) as server:
            with short_socket_path(self._directory / f"{self._name}.sock") as short:
                server.bind(short)
            server.listen(1)
            server.settimeout(REMINDER_S)
            path = self._directory / f"{self._name}.json"
            path.write_text(json.dumps(waiting))
            self._announce(str(path))
            try:
                while True:
                    print(
                        f"waits in the debugger at {where}: attach with `syncline debug` "
                        f"(pid {os.getpid()})",
                        file=sys.stderr,
                        flush=True,
                    )
                    try:
                        connection, _ = server.accept()
                    except TimeoutError:
                        continue
                    connection.setblocking(True)
                    return connection
            finally:
                path.unlink(missing_ok=True)
                (self._directory / f"{self._name}.sock").unlink(missing_ok=True)

    def _end(self) -> None:
        connection, self._connection, self._session = self._connection, None, None
        if connection is None:
            return
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the terminal is gone
        connection.close()
        self._release()

    def _release(self) -> None:
        for listener in listeners:
            listener(False)
        self._lock.release()


def waiting(directory: Path) -> list[dict[str, Any]]:
    """Return the workers of a session that wait in the debugger: pid, label, where and path."""
    found = []
    for path in sorted(directory.glob("debug-*.json")):
        try:
            found.append({**json.loads(path.read_text()), "path": str(path)})
        except (OSError, ValueError):  # it has just ended, or begins
            continue
    return [each for each in found if psutil.pid_exists(each["pid"])]  # the others were killed
