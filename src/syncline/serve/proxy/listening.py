"""The listening socket of a proxy: binding, passing it between processes, TLS, accepting.

The controller binds the socket and holds it while proxies come and go, so that clients wait in the
operating system's queue instead of being refused. A proxy on the controller's node connects to the
Unix socket `fd_path(...)` and receives one message with the file descriptor; a controller that
restarted gets it back from a proxy in the same way. Proxies on other nodes bind their own sockets.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable

from syncline.core.host import short_socket_path
from syncline.serve.proxy.server import HttpServer
from syncline.serve.proxy_options import HTTPOptions

logger = logging.getLogger("syncline.serve")

BACKLOG = 4096
"""Connections that the operating system queues."""
RECEIVE_S = 5.0
"""Seconds to wait for the socket of the controller."""
REQUEST = b"pass the listening socket"
"""Message of a proxy that needs the socket."""
HANDSHAKE_S = 10.0
"""Seconds for the TLS handshake of a client."""
LOCALHOST = "127.0.0.1"
_LOCAL_HOSTS = frozenset({"localhost", LOCALHOST, "::1"})


def fd_path(controller_path: str) -> str:
    """Return the Unix socket at which a controller passes its listening socket."""
    return f"{controller_path}.fds"


def open_listening_socket(host: str, port: int) -> socket.socket:
    """Bind and listen; `port=0` takes a free port.

    Raises OSError if the address is in use or not one of this machine.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(
            error.errno,
            f"{error.strerror or error}: cannot listen on {host}:{port}. Stop the program that "
            f"uses this address, or set another one, such as `http_options={{'port': 0}}` for a "
            f"free port",
        ) from error
    return listening


def receive_listening_socket(path: str) -> socket.socket:
    """Return the listening socket that the controller passes at `path`.

    Raises OSError if the controller does not answer in `RECEIVE_S`, or has no socket.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(RECEIVE_S)
        with short_socket_path(path) as short:
            connection.connect(short)
        connection.sendall(REQUEST)
        text, descriptors, _, _ = socket.recv_fds(connection, 256, 1)
    if not descriptors:
        reason = text.decode(errors="replace") or "it closed the connection"
        raise OSError(f"the controller passed no listening socket: {reason}")
    os.set_inheritable(descriptors[0], False)
    return socket.socket(fileno=descriptors[0])


def return_listening_socket(path: str, listening: socket.socket) -> None:
    """Pass the listening socket to a controller that restarted.

    Raises OSError if the controller does not listen at `path`.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(RECEIVE_S)
        with short_socket_path(path) as short:
            connection.connect(short)
        send_listening_socket(connection, listening)


def send_listening_socket(connection: socket.socket, listening: socket.socket) -> None:
    """Pass the listening socket to a process that is connected at `fd_path(...)`."""
    socket.send_fds(connection, [b"listening socket"], [listening.fileno()])


def tls_context(options: HTTPOptions) -> ssl.SSLContext | None:
    """Return the TLS settings; None without a certificate.

    Raises ValueError if a file cannot be read or the key does not fit.
    """
    if options.ssl_certfile is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(
            options.ssl_certfile, options.ssl_keyfile, options.ssl_keyfile_password or ""
        )
        if options.ssl_ca_certs is not None:
            context.load_verify_locations(options.ssl_ca_certs)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:  # also ssl.SSLError
        raise ValueError(
            f"TLS cannot use `ssl_certfile={options.ssl_certfile!r}`, "
            f"`ssl_keyfile={options.ssl_keyfile!r}` and `ssl_ca_certs={options.ssl_ca_certs!r}`: "
            f"{error}. {_tls_advice(options)}"
        ) from error
    return context


def _tls_advice(options: HTTPOptions) -> str:
    files = (options.ssl_certfile, options.ssl_keyfile, options.ssl_ca_certs)
    missing = [path for path in files if path is not None and not os.path.isfile(path)]
    if missing:
        return f"Missing: {', '.join(map(repr, missing))} (the working directory is {os.getcwd()})"
    return (
        "Give a certificate and its own key in PEM format; an encrypted key needs "
        "`ssl_keyfile_password`"
    )


def warn_if_exposed(address: tuple[str, int], *, has_tls: bool, protocol: str = "HTTP") -> None:
    """Log a line if other machines can reach the proxy without TLS."""
    if address[0] not in _LOCAL_HOSTS and not has_tls:
        logger.warning(
            "%s listens on %s:%d without TLS and without authentication: every machine that "
            "reaches this address can send requests.",
            protocol,
            *address,
        )


class Acceptor:
    """Accepts connections, up to the server's limit; beyond, clients wait in the system's queue."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        server: HttpServer,
        make_protocol: Callable[[], asyncio.Protocol],
        listening: socket.socket,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Take ownership of `listening`."""
        self._loop = loop
        self._server = server
        self._make_protocol = make_protocol
        self._listening = listening
        self._tls = tls
        self._accepting: asyncio.AbstractServer | None = None
        self._resuming: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        name = self._listening.getsockname()
        return name[0], name[1]

    @property
    def is_accepting(self) -> bool:
        """False while there are too many connections, and after `close`."""
        return self._accepting is not None

    def return_to(self, path: str) -> None:
        """Pass the listening socket to the controller that restarted at `path`; see
        `return_listening_socket`.
        """
        return_listening_socket(path, self._listening)

    async def start(self) -> None:
        """Begin to accept."""
        self._server.on_connections_changed = self._on_connections_changed
        await self._accept()

    def close(self) -> None:
        """Accept no more connections."""
        self._is_closed = True
        self._stop()
        self._listening.close()

    async def _accept(self) -> None:
        # A server closes its socket when it ends, so that each gets a duplicate.
        accepting = await self._loop.create_server(
            self._make_protocol,
            sock=self._listening.dup(),
            backlog=BACKLOG,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
        )
        if self._is_closed:
            accepting.close()
        else:
            self._accepting = accepting

    def _stop(self) -> None:
        if self._accepting is not None:
            self._accepting.close()
            self._accepting = None

    def _on_connections_changed(self, count: int) -> None:
        limit = self._server.limits.connections
        if count >= limit:
            if self._accepting is not None:
                logger.warning("The proxy has %d connections; more wait until one closes.", count)
                self._stop()
        elif self._accepting is None and self._resuming is None and not self._is_closed:
            self._resuming = self._loop.create_task(self._resume())

    async def _resume(self) -> None:
        try:
            await self._accept()
        finally:
            self._resuming = None
