"""`ListeningSockets`: the controller's HTTP socket, passed to the proxies of its node.

The controller holds the socket while proxies restart, so that clients wait in the system's queue
instead of being refused. After a restart of the controller, the proxies still hold it and return it
to the new controller, which binds the address again only if no proxy runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket

from syncline.core import host
from syncline.serve.proxy.listening import (
    BACKLOG,
    REQUEST,
    open_listening_socket,
    send_listening_socket,
)
from syncline.serve.proxy_options import HTTPOptions

logger = logging.getLogger("syncline.serve")


class ListeningSockets:
    """Holds the listening socket, and passes it on through a Unix socket.

    Args:
        path: Unix socket for proxies.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, path: str) -> None:
        self._loop = loop
        self.path = path
        self._listening: socket.socket | None = None
        self._address: tuple[str, int] | None = None
        self._server: socket.socket | None = None

    def resume(self, options: HTTPOptions) -> None:
        """Wait for a proxy of the controller's predecessor to return the socket for `options`."""
        if options.host is not None:
            self._address = (options.host, options.port)
            self._serve()

    def open(self, options: HTTPOptions) -> None:
        """Listen on the address of `options`; raise OSError if it is in use."""
        assert options.host is not None, "HTTP is disabled"
        wanted = (options.host, options.port)
        if self._listening is None or self._address != wanted:
            self.close_listening()
            self._listening = open_listening_socket(*wanted)
            self._address = wanted
        if self._server is None:
            self._serve()

    def close_listening(self) -> None:
        """Stop listening; proxies that hold the socket continue."""
        if self._listening is not None:
            self._listening.close()
        self._listening, self._address = None, None

    def close(self) -> None:
        """Close everything."""
        self.close_listening()
        if self._server is not None:
            self._loop.remove_reader(self._server.fileno())
            self._server.close()
            self._server = None
            _unlink(self.path)

    def _serve(self) -> None:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            server.setblocking(False)
            _unlink(self.path)  # of a killed predecessor
            with host.short_socket_path(self.path) as path:
                server.bind(path)
            os.chmod(self.path, 0o600)
            server.listen(BACKLOG)
        except BaseException:
            server.close()
            raise
        self._server = server
        self._loop.add_reader(server.fileno(), self._accept)

    def _accept(self) -> None:
        assert self._server is not None
        try:
            connection, _ = self._server.accept()
        except OSError:
            return
        if host.peer(connection).uid != os.getuid():
            logger.warning("Another user requested the listening socket.")
            connection.close()
            return
        connection.setblocking(False)
        self._loop.add_reader(connection.fileno(), self._answer, connection)

    def _answer(self, connection: socket.socket) -> None:
        self._loop.remove_reader(connection.fileno())
        with connection:
            try:
                request, descriptors, _, _ = socket.recv_fds(connection, len(REQUEST), 1)
                if descriptors:
                    self._take_back(socket.socket(fileno=descriptors[0]))
                elif request and self._listening is not None:
                    send_listening_socket(connection, self._listening)
                elif request:
                    connection.sendall(b"the controller does not listen")
            except OSError as error:
                logger.warning("A proxy did not accept the listening socket: %s", error)

    def _take_back(self, listening: socket.socket) -> None:
        if self._listening is None and self._address is not None:
            listening.set_inheritable(False)
            self._listening = listening
        else:
            listening.close()


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
