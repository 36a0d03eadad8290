"""`HttpCall`: a request of a client, from its head to the last byte of its response.

It becomes a call of the link when its body is complete, or exceeds the size of whole bodies. Frames
of the replica go to the connection, which writes them; failures become responses of the proxy.
"""

from __future__ import annotations

import logging
import math
from time import perf_counter
from typing import Any, Protocol

from syncline.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
)
from syncline.serve.proxy.body_stream import BodyStream
from syncline.serve.proxy.request_parser import RequestParser
from syncline.serve.proxy.responses import LocalResponse
from syncline.serve.proxy.routes import HttpRoute
from syncline.serve.proxy.server import HttpServer
from syncline.serve.routing.router import Call
from syncline.serve.wire.frames import Kind, RequestHead, decode_window, encode_request

logger = logging.getLogger("syncline.serve")

CLIENT_GONE = 499
"""Status in logs and counters for a request whose client closed the connection."""
RETRY_AFTER_S = 1
"""Seconds of the Retry-After header after the death of a replica."""
_LONGEST_REQUEST_ID = 128
_LONGEST_REASON = 500
_REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
INTERNAL_ERROR = LocalResponse(500, "Internal Server Error")


class ClientConnection(Protocol):
    """The connection of a request's client, which writes the response."""

    client: tuple[str, int] | None
    local: tuple[str, int | None]
    scheme: str
    websocket_scheme: str

    def on_response(self, call: HttpCall, payload: bytes) -> None:
        """Write a complete response."""

    def on_start(self, call: HttpCall, payload: bytes) -> None:
        """Write the head of a streamed response."""

    def on_chunk(self, call: HttpCall, payload: bytes) -> None:
        """Write a piece of a streamed response."""

    def on_response_end(self, call: HttpCall) -> None:
        """End a streamed response."""

    def on_abort(self, call: HttpCall) -> None:
        """Break off a streamed response."""

    def answer(self, call: HttpCall, local: LocalResponse) -> None:
        """Write a response of the proxy."""

    def update_reading(self) -> None:
        """Read on, or not, after a change of the request's body stream."""


class HttpCall(Call):
    """A request. The connection sets `connection` to None when the client is gone."""

    __slots__ = (
        "connection",
        "expects_continue",
        "headers",
        "http_version",
        "ignores_disconnect",
        "is_done",
        "is_websocket",
        "is_whole",
        "keep_alive",
        "local",
        "method",
        "pieces",
        "received",
        "request_id",
        "route",
        "sent",
        "server",
        "span",
        "started",
        "status",
        "stream",
        "target",
        "timeout_s",
    )

    def __init__(
        self, server: HttpServer, connection: ClientConnection | None, parser: RequestParser
    ) -> None:
        """Take a head from the parser."""
        self.server = server
        self.connection = connection
        self.method = parser.method
        self.target = parser.target
        self.headers = parser.headers
        self.http_version = parser.http_version
        self.keep_alive = parser.keep_alive and not parser.is_websocket and not server.is_draining
        """False if the connection closes after the response."""
        self.is_websocket = parser.is_websocket
        self.route: HttpRoute | None = None
        """None for requests that the proxy answers."""
        self.local: LocalResponse | None = None
        """Response of the proxy; None if a replica answers."""
        self.pieces: list[bytes] = []
        """The beginning of the body, until it is sent."""
        self.received = 0
        """Bytes of the body that have arrived."""
        self.is_whole = False
        """True when the body is complete."""
        self.expects_continue = False
        """True if the client waits for "100 Continue" before it sends the body."""
        self.stream: BodyStream | None = None
        """Sends the rest of a long body, or the bytes of a WebSocket client."""
        self.status = 0
        """Status of the response whose head was written; 0 before."""
        self.is_done = False
        self.ignores_disconnect = False
        """True if the request continues when the client is gone."""
        self.timeout_s: float | None = None
        self.request_id = ""
        self.started = perf_counter()
        self.sent = 0.0
        """Time at which the replica got it; 0 before."""
        self.span: Any = None
        """Span of OpenTelemetry; None without traces."""
        # Attributes of Call, set here because its constructor would cost as much as this one.
        self.kind = Kind.HTTP
        self.deadline = None
        self.model_id = ""
        self.session_id = ""
        self.may_repeat = False
        self.can_resend = True
        self.call_id = 0
        self.replica_id = ""
        self.deaths = 0
        self.expires = 0.0
        self.bucket = -1
        self.parts = ()

    @classmethod
    def refused(
        cls,
        server: HttpServer,
        connection: ClientConnection,
        parser: RequestParser,
        local: LocalResponse,
    ) -> HttpCall:
        """Return the answer to a request without a valid head."""
        call = cls(server, connection, parser)
        call.method = call.method or "-"
        call.local = local
        call.keep_alive = False
        call.is_websocket = False
        call.is_whole = True
        return call

    def read_request_id(self, special: dict[bytes, bytes]) -> None:
        """Take the request id of the client, or make one."""
        id = special.get(b"x-request-id")
        if id is not None and 0 < len(id) <= _LONGEST_REQUEST_ID and id.isascii():
            text = id.decode()
            if text.isprintable():
                self.request_id = text
                return
        self.request_id = self.server.request_ids.new()

    def read_options(self, route: HttpRoute, special: dict[bytes, bytes]) -> None:
        """Set the route, and the options that headers give."""
        self.route = route
        self.deployment = route.ingress
        self.may_repeat = route.idempotent or self.method in _REPEATABLE_METHODS
        if not self.is_websocket:  # which stays open as long as both sides want
            self.timeout_s = self.server.request_timeout_s
        if len(special) > 1 or b"host" not in special:
            self.read_request_id(special)
            self._read_headers(special)
        else:
            self.request_id = self.server.request_ids.new()
        if self.timeout_s is not None:
            self.deadline = self.server.clock() + self.timeout_s

    def submit(self) -> None:
        """Send the request to a replica, with the part of the body that has arrived."""
        pieces = self.pieces
        if not self.is_whole or self.is_websocket:
            self.stream = BodyStream(self.server.link, self, is_open=not self.is_websocket)
            if self.is_websocket:
                for piece in pieces:
                    self.stream.write(piece)
                pieces = []
        body = b"" if not pieces else pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.pieces = []
        server, connection, route = self.server, self.connection, self.route
        assert connection is not None
        assert route is not None
        head = RequestHead(
            self.method,
            server.root_path + self.target,
            self.headers if server.tracing is None else server.tracing.begin_request(self),
            self.http_version,
            connection.websocket_scheme if self.is_websocket else connection.scheme,
            connection.client,
            connection.local,
            route.root_path,
            self.request_id,
            self.timeout_s,
            self.keep_alive,
            not self.is_whole,
            self.model_id,
            route.label,
        )
        self.parts = encode_request(head, body)
        server.link.submit(self)

    # -- the link's side

    def on_started(self, replica_id: str) -> None:
        """Record the time; begin to stream a long body."""
        self.sent = perf_counter()
        if self.stream is not None:
            self.stream.on_started()
            if self.connection is not None:
                self.connection.update_reading()

    def on_frame(self, kind: int, payload: bytes) -> None:
        """Pass a frame to the client's connection."""
        if self.is_done:
            return
        connection = self.connection
        if connection is None:
            self._on_frame_without_client(kind, payload)
        elif kind == Kind.RESPONSE:
            connection.on_response(self, payload)
        elif kind == Kind.CHUNK:
            connection.on_chunk(self, payload)
        elif kind == Kind.START:
            self.can_resend = False
            connection.on_start(self, payload)
        elif kind == Kind.END:
            connection.on_response_end(self)
        elif kind == Kind.WINDOW:
            if self.stream is not None:
                self.stream.on_window(decode_window(payload))
                connection.update_reading()
        elif self.status:
            connection.on_abort(self)
        else:  # ERROR, or ABORT before START
            connection.answer(self, INTERNAL_ERROR)

    def on_failed(self, error: Exception) -> None:
        """Answer with the status of an error, or break off a response that has begun."""
        if self.is_done:
            return
        connection = self.connection
        if connection is None:
            self.finish(CLIENT_GONE)
        elif self.status:
            connection.on_abort(self)
        else:
            connection.answer(self, self._failure(error))

    def _on_frame_without_client(self, kind: int, payload: bytes) -> None:
        # The client is gone, but wants the request to continue.
        if kind == Kind.CHUNK:
            self.server.link.send(self, Kind.WINDOW, len(payload).to_bytes(4, "little"))
        elif kind == Kind.WINDOW:
            if self.stream is not None:
                self.stream.on_window(decode_window(payload))
        elif kind != Kind.START:
            self.finish(CLIENT_GONE)

    def finish(self, status: int) -> None:
        """Count the request, whose last byte was written."""
        self.is_done = True
        self.parts = ()
        self.pieces = []
        self.stream = None
        server, route = self.server, self.route
        elapsed = perf_counter() - self.started
        statistics = server.unrouted if route is None else route.statistics
        statistics.record(self.method, status, elapsed)
        if server.tracing is not None and self.span is not None:
            server.tracing.end_request(self, status, "" if route is None else route.label)
        if server.on_request_done is not None:
            try:
                server.on_request_done(self, status, elapsed)
            except Exception:  # must not reach the connection of the replica
                logger.exception("A request could not be recorded.")

    # -- headers and errors

    def _read_headers(self, special: dict[bytes, bytes]) -> None:
        timeout = special.get(b"x-request-timeout-seconds")
        if timeout is not None:
            self.timeout_s = _timeout(timeout, self.timeout_s)
        model_id = special.get(b"serve_multiplexed_model_id")
        if model_id is None:
            model_id = special.get(b"serve-multiplexed-model-id")
        if model_id:
            self.model_id = model_id.decode("latin-1")
        if b"x-session-id" in special:
            self.session_id = special[b"x-session-id"].decode("latin-1")
        if b"idempotency-key" in special:
            self.may_repeat = True
        self.ignores_disconnect = special.get(b"x-request-disconnect-disabled") == b"?1"

    def _failure(self, error: Exception) -> LocalResponse:
        """Return the response for an error of the link."""
        if isinstance(error, BackPressureError):
            headers: tuple[tuple[str, str], ...] = ()
            if error.retry_after_s is not None:
                headers = (("retry-after", str(math.ceil(error.retry_after_s))),)
            return LocalResponse(error.status_code, error.message, headers=headers)
        if isinstance(error, DeploymentUnavailableError):
            return LocalResponse(503, _shortened(error.message))
        if isinstance(error, ReplicaUnavailableError):
            text = f"Request {self.request_id} failed: {error}"
            if error.is_poison:
                self.server.on_poison(self.deployment, self.request_id, error.replica_id)
                return LocalResponse(500, text)
            return LocalResponse(502, text, headers=(("retry-after", str(RETRY_AFTER_S)),))
        if isinstance(error, TimeoutError):
            return LocalResponse(
                408, f"Request {self.request_id} timed out after {self.timeout_s}s."
            )
        return INTERNAL_ERROR


def _timeout(text: bytes, default: float | None) -> float | None:
    """Return the seconds in a header; None for no limit."""
    try:
        timeout_s = float(text)
    except ValueError:
        return default
    if not math.isfinite(timeout_s):
        return default
    return timeout_s if timeout_s > 0 else None


def _shortened(text: str) -> str:
    """Return the first line, without what may be long."""
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= _LONGEST_REASON else line[:_LONGEST_REASON] + "…"
