"""The terminal side of `debugger`: connects standard input and output to a worker's debugger.

In an interactive program, breakpoints of its workers open in its own terminal, one after another.
"""

from __future__ import annotations

import os
import queue
import select
import socket
import sys
import threading
from pathlib import Path

from syncline.core.host import short_socket_path
from syncline.core.live_region import suspended


def attach(path: Path) -> None:
    """Debug a worker until the session ends or the user types Ctrl-D, which continues the worker.

    Args:
        path: File of the waiting worker, from `debugger.waiting`.

    Raises:
        ConnectionError: The worker does not wait any more.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            with short_socket_path(path.with_suffix(".sock")) as short:
                connection.connect(short)
        except OSError as error:
            raise ConnectionError(f"The worker does not wait any more ({error}).") from error
        terminal, screen = sys.stdin.fileno(), sys.stdout.fileno()
        sources = [connection.fileno(), terminal]
        while True:
            readable, _, _ = select.select(sources, [], [])
            if connection.fileno() in readable:
                data = connection.recv(65_536)
                if not data:
                    return
                os.write(screen, data)
            if terminal in readable:
                typed = os.read(terminal, 65_536)
                if typed:
                    connection.sendall(typed)
                else:
                    connection.shutdown(socket.SHUT_WR)
                    sources.remove(terminal)


class DebugTerminal:
    """Attaches the terminal of an interactive program to its workers that wait in the debugger."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def on_waiting(self, path: str) -> None:
        """Record a waiting worker, without waiting."""
        if not _is_interactive():
            return  # the worker has printed how to attach
        self._waiting.put(path)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._serve, name="syncline-debugger", daemon=True
            )
            self._thread.start()

    def _serve(self) -> None:
        while True:
            path = Path(self._waiting.get())
            try:
                with suspended():
                    attach(path)
            except (OSError, ValueError):  # attached elsewhere, ended, or the terminal is gone
                continue


def _is_interactive() -> bool:
    """Return True if this process may read from its terminal; background processes may not."""
    try:
        terminal = sys.stdin.fileno()
        return os.isatty(sys.stdout.fileno()) and os.tcgetpgrp(terminal) == os.getpgrp()
    except (AttributeError, OSError, ValueError):  # no terminal, or a replaced stream
        return False
