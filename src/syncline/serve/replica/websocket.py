"""`WebSocketCall`: a WebSocket of an ASGI application.

The proxy passes the handshake as an HTTP frame, and after START (101) the bytes of both sides in
BODY and CHUNK frames, under windows; END closes the client's connection. The protocol itself is
`websockets`' `ServerProtocol`. A client that goes away is a `websocket.disconnect` event; user code
that does not end then is cancelled after `GRACE_S`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from websockets.exceptions import ProtocolError
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from syncline.serve.replica.dispatcher import Caller
from syncline.serve.replica.http_calls import AsgiApp, AsgiCall, Message, Scope
from syncline.serve.replica.http_response import (
    INTERNAL_SERVER_ERROR,
    SERVER,
    STATUS_BYTES,
    TEXT,
    RawHeaders,
    header_lines,
)
from syncline.serve.wire.frames import Kind, RequestHead

GRACE_S = 5.0
"""Seconds for user code to end after the client has gone, and for the client's part of a close."""
PING_S = 20.0
"""Seconds between pings, and until the answer to one is missing."""
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_MOST_EVENTS = 32
"""Received messages that wait for user code; beyond it, no more bytes are taken."""
_HANDSHAKE = frozenset(  # without the subprotocols, of which user code chooses one
    {
        b"connection",
        b"host",
        b"origin",
        b"sec-websocket-extensions",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"upgrade",
    }
)

_SERVER_ERROR, _RESTART, _NO_CODE, _LOST = 1011, 1012, 1005, 1006


class WebSocketCall(AsgiCall):
    """A WebSocket, from its handshake to its end."""

    __slots__ = (
        "_denial",
        "_events",
        "_fragments",
        "_has_closed",
        "_handshake",
        "_is_disconnected",
        "_is_open",
        "_is_text",
        "_ping_timer",
        "_pinged_at",
        "_protocol",
    )

    def __init__(
        self,
        caller: Caller,
        call_id: int,
        head: RequestHead,
        body: bytes,
        app: AsgiApp,
        lifespan_state: dict[str, Any] | None,
    ) -> None:
        super().__init__(caller, call_id, head, body, app, lifespan_state)
        self._protocol = ServerProtocol(
            extensions=[ServerPerMessageDeflateFactory()], max_size=MAX_MESSAGE_BYTES
        )
        self._events: deque[Message] = deque()  # for user code
        self._handshake: Response | None = None
        self._is_open = False  # True from the handshake on
        self._has_closed = False  # user code has closed or refused it
        self._is_disconnected = False  # the disconnect event was queued
        self._fragments: list[bytes] = []
        self._is_text = False
        self._denial: tuple[int, RawHeaders, list[bytes]] | None = None
        self._ping_timer: asyncio.TimerHandle | None = None
        self._pinged_at: float | None = None

    def limit_time(self, timeout_s: float) -> None:
        """Ignore the timeout of requests."""

    async def handle(self) -> None:
        """Check the handshake, run the application, close the WebSocket."""
        response = self._handshake = self._check_handshake()
        if response.status_code != 101:
            headers = [(k.encode(), v.encode("latin-1")) for k, v in response.headers.raw_items()]
            kept = [header for header in headers if header[0].lower() != b"date"]
            self.respond(response.status_code, kept, bytes(response.body))
            return
        self._events.append({"type": "websocket.connect"})
        await self._app(self.scope(), self.asgi_receive, self.asgi_send)
        if not self._is_open and not self.is_answered:
            raise RuntimeError("the ASGI application returned without answering the handshake")
        await self._finish(1000)

    def scope(self) -> Scope:
        """Return the ASGI scope of the WebSocket."""
        scope = super().scope()
        del scope["method"]
        names = [
            name.strip()
            for key, value in self.head.headers
            if key == b"sec-websocket-protocol"
            for name in value.decode("latin-1").split(",")
        ]
        scope.update(
            type="websocket", subprotocols=names, extensions={"websocket.http.response": {}}
        )
        return scope

    # -- ASGI

    async def asgi_receive(self) -> Message:
        """Return the next event; after the end, `websocket.disconnect` again and again."""
        while not self._events:
            if self._is_disconnected:
                return {"type": "websocket.disconnect", "code": _LOST, "reason": ""}
            await self.wait()
        event = self._events.popleft()
        self._pump()
        return event

    async def asgi_send(self, message: Message) -> None:
        """Send an event of user code.

        Raises RuntimeError for a wrong one, OSError after the client has gone.
        """
        kind = message["type"]
        if self._is_disconnected and kind != "websocket.close":
            raise OSError("the WebSocket is closed")
        if not self._is_open:
            self._answer_handshake(kind, message)
        elif self._has_closed:
            raise RuntimeError(f"{kind!r} came after 'websocket.close'")
        elif kind == "websocket.send":
            text, data = message.get("text"), message.get("bytes")
            if text is not None:
                self._protocol.send_text(text.encode())
            else:
                self._protocol.send_binary(data if data is not None else b"")
            await self._flush()
        elif kind == "websocket.close":
            self._close(message.get("code", 1000) or 1000, message.get("reason") or "")
        else:
            raise RuntimeError(f"expected 'websocket.send' or 'websocket.close', not {kind!r}")

    def _answer_handshake(self, kind: str, message: Message) -> None:
        if self.is_answered:
            raise RuntimeError(f"{kind!r} came after the WebSocket was refused")
        if kind == "websocket.accept":
            self._accept(message.get("subprotocol"), message.get("headers", ()))
        elif kind == "websocket.close":
            self._has_closed = True
            self.respond(403, ((b"content-type", TEXT),), b"")
        elif kind == "websocket.http.response.start":
            self._denial = (message["status"], message.get("headers", ()), [])
        elif kind == "websocket.http.response.body" and self._denial is not None:
            status, headers, pieces = self._denial
            pieces.append(message.get("body", b""))
            if not message.get("more_body", False):
                self._has_closed = True
                self.respond(status, headers, b"".join(pieces))
        else:
            raise RuntimeError(f"expected 'websocket.accept' or 'websocket.close', not {kind!r}")

    # -- handshake

    def _check_handshake(self) -> Response:
        """Return the response to the handshake; the status is 101 if it is valid."""
        lines = [b"GET / HTTP/1.1\r\n"]
        for name, value in self.head.headers:
            if name in _HANDSHAKE:
                lines.append(b"%b: %b\r\n" % (name, value))
        self._protocol.receive_data(b"".join((*lines, b"\r\n")))
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                return self._protocol.accept(event)
        raise RuntimeError("the proxy passed an invalid handshake")

    def _accept(self, subprotocol: str | None, headers: RawHeaders) -> None:
        response = self._handshake
        assert response is not None
        lines, present, _ = header_lines(headers)
        own = [b"HTTP/1.1 101 Switching Protocols\r\n"]
        own += [f"{k.lower()}: {v}\r\n".encode() for k, v in response.headers.raw_items()]
        if b"server" not in present:
            own.append(b"server: %b\r\n" % SERVER)
        if subprotocol is not None:
            if not subprotocol.isprintable() or not subprotocol.isascii():
                raise RuntimeError(f"{subprotocol!r} is not the name of a subprotocol")
            own.append(f"sec-websocket-protocol: {subprotocol}\r\n".encode())
        own.append(b"x-request-id: %b\r\n" % self.request_id.encode("latin-1", "replace"))
        self._protocol.send_response(response)
        self._protocol.data_to_send()  # the same response, without the lines above
        self._is_open = True
        self._start(101, b"".join((*own, *lines, b"\r\n")))
        self._ping_timer = self.dispatcher.loop.call_later(PING_S, self._ping)

    # -- bytes and events

    def notify(self) -> None:
        """Take the bytes that have arrived."""
        self._pump()
        super().notify()

    def _pump(self) -> None:
        """Parse bytes of the client while user code is not too far behind."""
        while self._is_open and not self._is_disconnected and len(self._events) < _MOST_EVENTS:
            data = self.take_body()
            if data is None:
                return
            self._protocol.receive_data(data)
            for event in self._protocol.events_received():
                if isinstance(event, Frame):
                    self._on_message_frame(event)
            self._send_output()  # pongs, and the answer to a close
            if self._protocol.parser_exc is not None:
                self._disconnect(self._protocol.close_code or _LOST, "")

    def _on_message_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            code = self._protocol.close_rcvd
            self._disconnect(code.code if code else _NO_CODE, code.reason if code else "")
        elif frame.opcode is Opcode.PONG:
            self._pinged_at = None
        elif frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            if frame.opcode is not Opcode.CONT:
                self._is_text = frame.opcode is Opcode.TEXT
            self._fragments.append(bytes(frame.data))
            if frame.fin:
                self._on_message()

    def _on_message(self) -> None:
        data = b"".join(self._fragments)
        self._fragments.clear()
        if self._has_closed:
            return
        if not self._is_text:
            self._events.append({"type": "websocket.receive", "bytes": data})
            return
        try:
            self._events.append({"type": "websocket.receive", "text": data.decode()})
        except UnicodeDecodeError:
            self._protocol.fail(1007, "invalid UTF-8")
            self._disconnect(1007, "")

    def _disconnect(self, code: int, reason: str) -> None:
        if not self._is_disconnected:
            self._is_disconnected = True
            self._events.append({"type": "websocket.disconnect", "code": code, "reason": reason})
            super().notify()

    def _ping(self) -> None:
        now = time.monotonic()
        if self._protocol.state is not State.OPEN or self.is_answered:
            return
        if self._pinged_at is not None:
            self._protocol.fail(_SERVER_ERROR, "keepalive ping timeout")
            self._send_output()
            self._disconnect(_LOST, "")
            return
        self._pinged_at = now
        self._protocol.send_ping(b"")
        self._send_output()
        self._ping_timer = self.dispatcher.loop.call_later(PING_S, self._ping)

    # -- output and end

    def _send_output(self) -> None:
        data = b"".join(self._protocol.data_to_send())
        if data and not self.is_answered:
            self.window -= len(data)
            self.send(Kind.CHUNK, data)

    async def _flush(self) -> None:
        if self.window <= 0:
            await self.wait_for_window()
        self._send_output()

    def _close(self, code: int, reason: str = "") -> None:
        """Send a close frame, unless one was sent."""
        self._has_closed = True
        if self._protocol.state is State.OPEN:
            try:
                self._protocol.send_close(code, reason)
            except ProtocolError as error:  # a code that is not allowed on the wire
                raise RuntimeError(f"close code {code} is not allowed: {error}") from error
            self._send_output()

    async def _finish(self, code: int) -> None:
        """Close if user code did not; wait for the client's part; end the call."""
        if self._is_open and not self.is_answered:
            self._close(code)
            end = self.dispatcher.loop.time() + GRACE_S
            timer = self.dispatcher.loop.call_later(GRACE_S, self.notify)
            while not self._is_disconnected and self.dispatcher.loop.time() < end:
                self._events.clear()
                self._pump()
                await self.wait()
            timer.cancel()
        self._end()

    def _end(self) -> None:
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        self.answer(Kind.END)

    def answer_error(self, error: BaseException) -> None:
        """Log the error; refuse with 500, or close with code 1011."""
        self.log_error(error, f"WebSocket {self.route}")
        if self.is_answered:
            return
        if not self._is_open:
            self.respond(500, ((b"content-type", TEXT),), INTERNAL_SERVER_ERROR)
            return
        self._close(_SERVER_ERROR)
        self._end()

    def answer_cancelled(self) -> None:
        """End the call; the client is gone, or the replica stops."""
        if not self._is_open and not self.is_answered:
            self.answer(Kind.RESPONSE, STATUS_BYTES[499], b"")
        elif not self.is_answered:
            self._close(_RESTART)
            self._end()

    def cancel(self, is_expired: bool = False) -> None:
        """Notify user code that the client has gone; cancel it if it continues."""
        if self._is_disconnected:
            super().cancel(is_expired)
            return
        self._disconnect(_LOST, "")
        self._timer = self.dispatcher.loop.call_later(GRACE_S, self.cancel)

    def drain(self) -> None:
        """Close with code 1012: the client may connect again, to another replica."""
        if self._is_open and not self.is_answered:
            self._close(_RESTART)
            self._disconnect(_RESTART, "")
