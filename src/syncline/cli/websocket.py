"""The receiving end of a WebSocket: text comes in, and nothing is sent but what the protocol asks
for.
"""

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
    """The server does not speak WebSocket at that address, or does not want to."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status


class WebSocket:
    """A connection to `url` (`http://` or `https://`). Not for several threads.

    Args:
        url: Where to connect.
        headers: Further lines of the request.
        limit_s: Seconds that connecting and the handshake may take, each.

    Raises:
        HandshakeRefused: if the server answers something else; `status` is its answer in HTTP's
        numbers, 0 if there is none. OSError: if it cannot be reached.
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
        """The next message; None if none has come whole within the limit.

        EOFError once the server has closed the connection, OSError where it broke.
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
