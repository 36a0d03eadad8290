"""pdb on a socket, for `debugger`."""

from __future__ import annotations

import io
import pdb
import socket
from collections.abc import Callable


class RemoteTerminal(io.TextIOBase):
    """Input and output of pdb. A terminal that is gone is at the end of its input."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._typed = connection.makefile("r", encoding="utf-8", errors="replace")

    def readline(self, size: int | None = -1) -> str:  # type: ignore[override]
        try:
            return self._typed.readline()
        except OSError:
            return ""

    def write(self, text: str) -> int:
        try:
            self._connection.sendall(text.encode(errors="replace"))
        except OSError:
            pass
        return len(text)


class RemotePdb(pdb.Pdb):
    """pdb that continues when its terminal is gone, and tells when a session has ended."""

    def __init__(self, terminal: RemoteTerminal, on_end: Callable[[], None]) -> None:
        super().__init__(stdin=terminal, stdout=terminal, nosigint=True)  # type: ignore[arg-type]
        self.use_rawinput = False
        self.prompt = "(Pdb) "
        self._on_end = on_end

    def set_continue(self) -> None:
        super().set_continue()
        if not self.breaks:
            self._on_end()

    def set_quit(self) -> None:
        super().set_quit()
        self._on_end()

    def do_EOF(self, arg: str) -> bool | None:
        """Continue."""
        self.clear_all_breaks()
        return self.do_continue(arg)
