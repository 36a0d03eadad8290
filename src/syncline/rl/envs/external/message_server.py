"""`MessageServer`: accepts simulators on a TCP port or Unix socket, and answers their messages."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from syncline.rl.envs.external.rllink import (
    Message,
    RLlink,
    get_rllink_message,
    send_rllink_message,
)

logger = logging.getLogger("syncline")

Address = tuple[str, int] | str
"""Host and port, or the path of a Unix socket."""


class Peer(Protocol):
    """Handles the messages of one simulator."""

    def answer(self, kind: RLlink, message: Message) -> Message | None:
        """Return the answer to a message, or None for no answer.

        Raises ValueError for an invalid message; its text is sent to the simulator.
        """
        ...

    def closed(self) -> None:
        """Handle the end of the connection."""
        ...


class MessageServer:
    """Answers each simulator in a separate thread.

    Args:
        address: Address to listen on; port 0 for any free port.
        new_peer: Called for each simulator.

    Raises:
        OSError: The address cannot be used.
    """

    def __init__(self, address: Address, new_peer: Callable[[], Peer]) -> None:
        self._new_peer = new_peer
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self._path = address if isinstance(address, str) else None
        if isinstance(address, str):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address)
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self._listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET:
                self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listening.bind(address)
        except OSError as error:
            self._listening.close()
            raise OSError(
                f"Simulators cannot connect at {address}: {error}. Set another "
                "`env_config={'port': …}` or `{'socket_path': …}`."
            ) from error
        self._listening.listen()
        threading.Thread(target=self._accept, name="external-envs", daemon=True).start()

    @property
    def address(self) -> Address:
        """Address that simulators connect to."""
        found: Address = self._listening.getsockname()
        return found

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # closed
                return
            with self._lock:
                if self._is_closed:
                    connection.close()
                    return
                self._connections.add(connection)
            threading.Thread(
                target=self._serve, args=(connection,), name="external-env", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        peer = self._new_peer()
        try:
            while True:
                kind, message = get_rllink_message(connection)
                try:
                    answer = peer.answer(kind, message)
                except (ValueError, KeyError, TypeError) as error:
                    answer = {"type": RLlink.ERROR.name, "error": f"{kind}: {error}"}
                if answer is not None:
                    send_rllink_message(connection, answer)
        except ConnectionError as error:
            if not self._is_closed:
                logger.info("An external simulator disconnected: %s", error)
        finally:
            peer.closed()
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._is_closed = True
            open_ones = list(self._connections)
        for each in [self._listening, *open_ones]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
