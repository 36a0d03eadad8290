"""Receiving side of a WebSocket; sends only what the protocol requires."""

from __future__ import annotations

from collections.abc import Mapping

from websocket import (
    WebSocketBadStatusException,
    WebSocketConnectionClosedException,
    WebSocketException,
    WebSocketTimeoutException,
    create_connection,
)

_CLOSE = 8


class HandshakeRefused(ConnectionError):
    """The server does not accept a WebSocket at this address."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status


class WebSocket:
    """A connection to `url` (`http://` or `https://`). Not thread-safe.

    Args:
        url: Address of the server.
        headers: Additional headers of the request.
        limit_s: Seconds for the connection and for the handshake, each.

    Raises:
        HandshakeRefused: The server gives another answer; `status` is its HTTP status, or 0.
        OSError: The server cannot be reached.
    """

    def __init__(self, url: str, headers: Mapping[str, str], limit_s: float) -> None:
        try:
            self._connection = create_connection(
                url.replace("http", "ws", 1), limit_s, header=dict(headers), http_no_proxy=["*"]
            )
        except WebSocketBadStatusException as error:
            raise HandshakeRefused(error.status_code, str(error)) from None
        except WebSocketException as error:
            raise HandshakeRefused(0, str(error)) from None

    def __enter__(self) -> WebSocket:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.shutdown()

    def receive(self, limit_s: float) -> str | None:
        """Return the next message; None if no complete message comes within the limit.

        Raises:
            EOFError: The server closed the connection.
            OSError: The connection broke.
        """
        self._connection.settimeout(limit_s)
        try:
            opcode, message = self._connection.recv_data()
        except WebSocketTimeoutException:
            return None
        except WebSocketConnectionClosedException:
            raise EOFError("the server closed the connection") from None
        if opcode == _CLOSE:
            raise EOFError("the server closed the connection")
        return str(message.decode(errors="replace"))
