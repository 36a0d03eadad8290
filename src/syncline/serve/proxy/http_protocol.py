"""`HttpConnection`: one connection of a client.

Requests are answered in order; pipelined requests wait in a queue. The *current* request is the
next one to be answered, the *incoming* request the one whose body is being received; usually they
are the same. A refusal is queued like any other response; afterwards the connection closes, once
the client has had time to read it.

There are no timers per connection: `expires` is the time of its next check, and the server's sweep
calls `on_expired` then.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections import deque
from typing import cast

from syncline.serve.proxy import responses
from syncline.serve.proxy.limits import Stall
from syncline.serve.proxy.request_parser import BadRequest, RequestParser
from syncline.serve.proxy.requests import CLIENT_GONE, INTERNAL_ERROR, HttpCall
from syncline.serve.proxy.responses import LocalResponse
from syncline.serve.proxy.server import HttpServer
from syncline.serve.wire.frames import Kind, encode_window

logger = logging.getLogger("syncline.serve")

GRANT_BYTES = 65_536
"""Bytes of a streamed response that the client accepted, for which the replica gets a grant."""
_SWITCHING_PROTOCOLS = 101
_CLOSES = b"\r\nconnection: close\r\n"
_LONGEST_CONTENT_LENGTH = 20


class HttpConnection(asyncio.Protocol):
    """Protocol of a client's connection."""

    __slots__ = (
        "_current",
        "_drained_bytes",
        "_grantable",
        "_head_count",
        "_ignores_input",
        "_incoming",
        "_is_advancing",
        "_is_closing",
        "_is_feeding",
        "_is_lingering",
        "_is_reading",
        "_is_writable",
        "_parser",
        "_queue",
        "_server",
        "_stall",
        "_timed_head",
        "_transport",
        "_websocket",
        "client",
        "expires",
        "local",
        "scheme",
        "websocket_scheme",
    )

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._parser = RequestParser(server.limits, self, server.known_hosts)
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._current: HttpCall | None = None
        self._incoming: HttpCall | None = None
        self._websocket: HttpCall | None = None  # gets all bytes after its handshake
        self._queue: deque[HttpCall] = deque()
        self._is_advancing = False
        self._is_feeding = False
        self._is_reading = True
        self._is_writable = True
        self._is_closing = False
        self._is_lingering = False
        self._ignores_input = False
        self._grantable = 0  # bytes of a stream that the replica got no grant for
        self._drained_bytes = 0  # of a body whose request was answered before its end
        self._head_count = 0
        self._timed_head = -1  # the head for which `expires` was set
        self._stall = Stall()
        self.expires = math.inf
        """Time of the next check."""
        self.client: tuple[str, int] | None = None
        self.local: tuple[str, int | None] = ("", None)
        """Host and port that the client connected to."""
        self.scheme = "http"
        self.websocket_scheme = "ws"

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Record the addresses."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.client = (str(peer[0]), int(peer[1]))
        name = transport.get_extra_info("sockname")
        if isinstance(name, tuple):
            self.local = (str(name[0]), int(name[1]))
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme, self.websocket_scheme = "https", "wss"
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server.opened(self)
        self.expires = self._server.now + self._server.limits.keep_alive_s

    def data_received(self, data: bytes) -> None:
        """Parse requests, or pass bytes of a WebSocket client on."""
        if self._websocket is not None:
            self._relay(data)
        elif not self._ignores_input:
            self._feed(data)

    def eof_received(self) -> None:
        """Let the transport close: a client that ends its side is gone."""

    def connection_lost(self, error: Exception | None) -> None:
        """Cancel the current request."""
        self._server.closed(self)
        self._parser.close()
        self._ignores_input = self._is_closing = True
        self._queue.clear()
        call, self._current, self._incoming = self._current, None, None
        if call is None or call.is_done:
            return
        call.connection = None
        if call.call_id and call.ignores_disconnect and call.is_whole and not call.is_websocket:
            return
        if call.call_id:
            self._server.link.cancel(call)
        call.finish(call.status if call.is_websocket and call.status else CLIENT_GONE)

    def pause_writing(self) -> None:
        """Stop the grants for the streamed response."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """Grant the bytes that the client accepted, and continue with the next request."""
        self._is_writable = True
        if self._current is not None:
            self._grant(self._current)
        elif not self._is_closing:
            self._advance()

    # -- requests

    def _feed(self, data: bytes) -> None:
        parser = self._parser
        self._is_feeding = True
        try:
            rest = parser.feed(data)
        except BadRequest as error:
            if not self._ignores_input:
                self.refuse(error)
            return
        finally:
            self._is_feeding = False
        if parser.phase != parser.IDLE:
            self._watch_arrival()
        if rest and self._websocket is not None:
            self._relay(rest)
        if self._incoming is not None or self._queue or not self._is_reading:
            self.update_reading()

    def _watch_arrival(self) -> None:
        """Set the time at which an incomplete head or body is too late."""
        server = self._server
        if self._parser.phase == RequestParser.BODY:
            self.expires = server.now + server.limits.body_s
        elif self._timed_head != self._head_count:
            self._timed_head = self._head_count
            self.expires = server.now + server.limits.head_s

    def on_head(self, parser: RequestParser) -> None:
        """Begin a request."""
        if self._ignores_input:
            return
        self._head_count += 1
        server = self._server
        self._incoming = call = HttpCall(server, self, parser)
        path = parser.path
        route = None
        if path.startswith(b"/-/"):
            call.local = server.local_response(path)
        if call.local is None:
            route = server.routes.find(path)
        if route is not None:
            call.read_options(route, parser.special)
        else:
            call.local = call.local or server.not_found(path)
            call.read_request_id(parser.special)
        if self._current is None and not self._queue and self._is_writable:
            self._current = call
        else:
            self._queue.append(call)
            parser.is_held = len(self._queue) >= server.limits.pipelined
        if parser.has_body:
            self._expect_body(call, parser.special)

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of the body, send it on, or drop it."""
        call = self._incoming
        if call is None:
            return
        limits = self._server.limits
        call.received += len(piece)
        if call.received > limits.body_bytes:
            raise _body_too_large(limits.body_bytes)
        if call.is_done:
            self._drained_bytes += len(piece)
            if self._drained_bytes > limits.whole_body_bytes:
                self._close()
        elif call.stream is not None:
            call.stream.write(piece)
        else:
            if call.local is None:
                call.pieces.append(piece)
            if call.received > limits.whole_body_bytes and call is self._current:
                self._start(call)

    def on_end(self) -> None:
        """Submit the request whose body is complete."""
        call = self._incoming
        if call is None:
            return
        self._incoming = None
        call.is_whole = True
        if call.is_websocket:
            self._websocket = call
        elif not call.keep_alive:
            self._ignores_input = True
        if call.is_done:
            return
        if call.stream is not None:
            call.stream.end()
        elif call is self._current:
            self._start(call)

    def refuse(self, error: BadRequest) -> None:
        """Answer with a status and close the connection."""
        self._server.refused_requests += 1
        self._ignores_input = True
        local = LocalResponse(error.status, error.text)
        call, self._incoming = self._incoming, None
        self._is_lingering = True
        if call is None:
            call = HttpCall.refused(self._server, self, self._parser, local)
            self._queue.append(call)
        elif call.is_done:
            self._close()
        elif call.call_id:
            self._server.link.cancel(call)
            if call.status:
                self.on_abort(call)
            else:
                self.answer(call, local)
        else:
            call.local, call.is_whole, call.keep_alive = local, True, False
            if call is self._current:
                self.answer(call, local)
        self._parser.close()
        self._advance()

    def _expect_body(self, call: HttpCall, special: dict[bytes, bytes]) -> None:
        """Check the announced length; let a client that asks before it sends the body continue."""
        limit = self._server.limits.body_bytes
        length = special.get(b"content-length", b"0")
        if len(length) > _LONGEST_CONTENT_LENGTH:
            raise BadRequest(400, "The Content-Length header has too many digits.")
        if int(length) > limit:
            raise _body_too_large(limit)
        self._drained_bytes = 0
        if special.get(b"expect", b"").lower() == b"100-continue" and call.http_version == "1.1":
            if call.local is not None:
                call.keep_alive = False
                if call is self._current:
                    self.answer(call, call.local)
            elif call is self._current:
                self._transport.write(responses.CONTINUE)
            else:
                call.expects_continue = True

    def _start(self, call: HttpCall) -> None:
        """Answer or submit the current request."""
        if call.local is not None:
            self.answer(call, call.local)
            return
        try:
            call.submit()
        except Exception:
            logger.exception("Request %s could not be sent to a replica.", call.request_id)
            self._server.link.cancel(call)
            if not call.is_done:
                self.answer(call, INTERNAL_ERROR)

    def _advance(self) -> None:
        """Make the next request of the queue the current one."""
        if self._is_advancing:
            return
        self._is_advancing = True
        limits = self._server.limits
        while self._current is None and self._queue and self._is_writable and not self._is_closing:
            self._current = call = self._queue.popleft()
            if call.is_whole or call.received > limits.whole_body_bytes:
                self._start(call)
            elif call.local is not None and not call.keep_alive:
                self.answer(call, call.local)
            elif call.expects_continue:
                self._transport.write(responses.CONTINUE)
        self._is_advancing = False
        if self._parser.is_held and len(self._queue) < limits.pipelined:
            self._parser.is_held = False
            if not self._is_feeding and not self._ignores_input:
                self._feed(b"")
        self.update_reading()

    # -- responses

    def on_response(self, call: HttpCall, payload: bytes) -> None:
        """Write a complete response."""
        self._transport.write(payload[2:])
        self._finish(call, payload[0] | payload[1] << 8)

    def on_start(self, call: HttpCall, payload: bytes) -> None:
        """Write the head of a streamed response."""
        call.status = payload[0] | payload[1] << 8
        if call.http_version == "1.0" and _CLOSES in payload:
            call.keep_alive = False  # the response has no length and ends with the connection
        self._grantable = 0
        self._transport.write(payload[2:])
        if call.is_websocket and call.status == _SWITCHING_PROTOCOLS and call.stream is not None:
            call.stream.open()
            self.update_reading()

    def on_chunk(self, call: HttpCall, payload: bytes) -> None:
        """Write a piece of a streamed response."""
        self._transport.write(payload)
        self._grantable += len(payload)
        if self._grantable >= GRANT_BYTES and self._is_writable:
            self._grant(call)

    def on_response_end(self, call: HttpCall) -> None:
        """End a streamed response."""
        self._finish(call, call.status)

    def on_abort(self, call: HttpCall) -> None:
        """Break off a streamed response, so that the client notices."""
        call.keep_alive = False
        if call.http_version == "1.0":  # the end of its response is the end of the connection
            self._transport.abort()
        self._finish(call, call.status)

    def answer(self, call: HttpCall, local: LocalResponse) -> None:
        """Write a response of the proxy."""
        call.keep_alive = call.keep_alive and call.is_whole and not self._server.is_draining
        self._transport.write(
            responses.encode(
                local,
                request_id=call.request_id,
                is_head=call.method == "HEAD",
                keep_alive=call.keep_alive,
                is_old=call.http_version == "1.0",
            )
        )
        self._finish(call, local.status)

    def _grant(self, call: HttpCall) -> None:
        if self._grantable:
            self._server.link.send(call, Kind.WINDOW, encode_window(self._grantable))
            self._grantable = 0

    def _finish(self, call: HttpCall, status: int) -> None:
        """Count the answered request; close the connection or continue with the next one."""
        call.finish(status)
        self._current = None
        server = self._server
        if not call.keep_alive or server.is_draining:
            self._close()
            return
        if self._parser.phase == RequestParser.IDLE:
            self.expires = server.now + server.limits.keep_alive_s
        if self._queue:
            self._advance()
        elif not self._is_reading:
            self.update_reading()

    # -- WebSockets

    def _relay(self, data: bytes) -> None:
        call = self._websocket
        assert call is not None
        if call.is_done:
            return
        if call.stream is not None:
            call.stream.write(data)
        else:
            call.pieces.append(data)
        self.update_reading()

    # -- flow, time, end

    @property
    def is_busy(self) -> bool:
        """True while a request waits for its response."""
        return self._current is not None

    def update_reading(self) -> None:
        """Read from the client's socket, or leave its bytes there."""
        should_read = self._is_closing or not self._is_full()
        if should_read != self._is_reading:
            self._is_reading = should_read
            if should_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _is_full(self) -> bool:
        limits = self._server.limits
        call = self._websocket
        if call is not None and not call.is_done:
            return call.stream is None or call.stream.is_blocked
        call = self._incoming
        if call is not None and call.stream is not None and not call.is_done:
            return call.stream.is_blocked
        return bool(self._queue) and (
            len(self._queue) >= limits.pipelined
            or sum(call.received for call in self._queue) > limits.whole_body_bytes
        )

    def on_expired(self) -> None:
        """Close a connection that is idle, stalled, or too slow; called by the server's sweep."""
        server = self._server
        now, limits = server.now, server.limits
        unsent = self._transport.get_write_buffer_size()
        is_waiting = self._current is not None or bool(self._queue)
        if self._is_closing or unsent:
            limit_s = limits.stalled_s if unsent else limits.linger_s
            if self._stall.has_lasted(unsent, now, limit_s):
                self._transport.abort()
            else:
                self.expires = now + limits.linger_s
        elif self._ignores_input or (is_waiting and self._incoming is None):
            self.expires = now + limits.head_s
        elif self._parser.phase == RequestParser.HEAD:
            self.refuse(BadRequest(408, "The head of the request took too long."))
        elif self._incoming is None:
            self._close()
        elif not self._is_reading:
            self.expires = now + limits.body_s
        else:
            self.refuse(BadRequest(408, f"No byte of the body arrived for {limits.body_s:g} s."))

    def drain(self) -> None:
        """Close the connection now if it is idle, else after the current response."""
        is_idle = self._current is None and not self._queue
        if is_idle and self._parser.phase == RequestParser.IDLE:
            self._close()

    def abort(self) -> None:
        """Close the connection immediately."""
        self._transport.abort()

    def _close(self) -> None:
        """Close after the written bytes; read on for a while if the client may still send.

        Closing a socket with unread bytes resets the connection, and the client may lose the
        response.
        """
        if self._is_closing:
            return
        self._is_lingering = self._is_lingering or self._incoming is not None
        self._is_closing = self._ignores_input = True
        self._incoming = None
        self._queue.clear()
        server = self._server
        self.expires = server.now + server.limits.linger_s
        if self._is_lingering and self._transport.can_write_eof():
            self._transport.write_eof()
            self.update_reading()
        else:
            self._transport.close()


def _body_too_large(limit: int) -> BadRequest:
    return BadRequest(413, f"The request body is larger than {limit} bytes.")
