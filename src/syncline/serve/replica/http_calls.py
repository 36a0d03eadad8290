"""HTTP requests in a replica: `PlainCall` for plain deployments, `AsgiCall` for ASGI applications.

Both are ASGI servers for one request, with the behaviour of uvicorn. A response whose first body
event is the last one leaves as one RESPONSE frame; others as START, CHUNK and END frames under the
window of the proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from syncline.serve.replica.dispatcher import Caller, OngoingCall
from syncline.serve.replica.http_response import (
    INTERNAL_SERVER_ERROR,
    STATUS_BYTES,
    TEXT,
    RawHeaders,
    encode_body_head,
    encode_head,
    encode_result,
    has_no_body,
)
from syncline.serve.replica.user_code import MethodKind, UserCode
from syncline.serve.tracing import Carrier, carrier_of, with_carrier
from syncline.serve.wire.frames import Kind, RequestHead

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_RESPONSE, _START, _CHUNK = int(Kind.RESPONSE), int(Kind.START), int(Kind.CHUNK)
_ASGI = {"version": "3.0", "spec_version": "2.4"}
_LARGE_BYTES = 1_048_576
"""Size of a complete body from which it is sent in pieces under the window."""
_PIECE_BYTES = 131_072
HEAD_DELAY_S = 0.005
"""Seconds that the head of a response waits for the first piece of its body."""

# States of a response.
_NOTHING, _HEAD, _STREAM, _COMPLETE = range(4)


class HttpCall(OngoingCall):
    """An HTTP frame and its answer: the `receive` and `send` of an ASGI application."""

    __slots__ = (
        "_body",
        "_declared",
        "_expected",
        "_has_no_body",
        "_head_timer",
        "_headers",
        "_is_body_read",
        "_is_chunked",
        "_state",
        "_status",
        "head",
        "lifespan_state",
    )

    def __init__(self, caller: Caller, call_id: int, head: RequestHead, body: bytes) -> None:
        super().__init__(caller, call_id)
        self.head = head
        self._body: bytes | None = body if body or not head.more_body else None
        self._is_body_read = False  # True after the end of a body in BODY frames
        self.request_id = head.request_id
        self.route = head.route
        self.app_name = self.dispatcher.app_name
        self.multiplexed_model_id = head.multiplexed_model_id
        self.session_id = ""
        self.deadline = None
        if head.timeout_s is not None:
            self.limit_time(head.timeout_s)
        self.lifespan_state: dict[str, Any] | None = None
        """State of the application's lifespan, copied into the scope of each request."""
        self._state = _NOTHING
        self._status = 0
        self._headers: RawHeaders = ()
        self._head_timer: asyncio.TimerHandle | None = None
        self._is_chunked = False
        self._has_no_body = False
        self._expected: int | None = None  # bytes that the body still lacks, if that is known

    def label(self) -> str:
        """Return the HTTP method and the route."""
        return f"{self.head.method} {self.route}"

    def trace_carrier(self) -> Carrier | None:
        """Return the trace context in the headers, which the proxy has set."""
        return carrier_of(self.head.headers)

    def set_trace_carrier(self, carrier: Carrier) -> None:
        """Replace the headers, from which FastAPI and other instrumented libraries continue."""
        self.head = self.head._replace(headers=with_carrier(self.head.headers, carrier))

    def scope(self) -> Scope:
        """Return the ASGI scope of the request."""
        head = self.head
        raw_path, _, query = head.target.partition(b"?")
        path = raw_path.decode("latin-1")
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": head.http_version,
            "server": head.server,
            "client": head.client,
            "scheme": head.scheme,
            "method": head.method,
            "root_path": head.root_path,
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": head.headers,
        }
        if self.lifespan_state is not None:
            scope["state"] = self.lifespan_state.copy()
        return scope

    # -- ASGI

    async def asgi_receive(self) -> Message:
        """Return the next event of the request."""
        while not (self.is_cancelled or self.is_answered):
            has_more = self.head.more_body
            if self._body is not None:
                data, self._body = self._body, None
                return {"type": "http.request", "body": data, "more_body": has_more}
            if has_more and not self._is_body_read and (piece := self.take_body()) is not None:
                self._is_body_read = not piece
                return {"type": "http.request", "body": piece, "more_body": bool(piece)}
            await self.wait()
        return {"type": "http.disconnect"}

    async def asgi_send(self, message: Message) -> None:
        """Send an event of the response.

        Raises RuntimeError for wrong events, invalid headers, and a body whose length differs from
        its content-length; OSError after the client has gone.
        """
        kind = message["type"]
        if self.is_cancelled:
            raise OSError("the client has disconnected, or the request timed out")
        if self._state == _NOTHING:
            if kind != "http.response.start":
                raise RuntimeError(f"expected 'http.response.start' first, not {kind!r}")
            self._status, self._headers = message["status"], message.get("headers", ())
            self._state = _HEAD
            if self._head_timer is None:
                self._head_timer = self.dispatcher.loop.call_later(HEAD_DELAY_S, self._send_late)
        elif self._state == _COMPLETE:
            raise RuntimeError(f"{kind!r} came after the end of the response")
        elif kind != "http.response.body":
            raise RuntimeError(f"expected 'http.response.body', not {kind!r}")
        else:
            body = message.get("body", b"")
            if message.get("more_body", False):
                await self._send_piece(body)
            elif self._state == _HEAD and len(body) < _LARGE_BYTES:
                self.respond(self._status, self._headers, body)
            else:
                await self._send_rest(body)

    # -- responses

    def respond(self, status: int, headers: RawHeaders, body: bytes | memoryview) -> None:
        """Send a complete response; raises RuntimeError for an invalid one."""
        self._cancel_head_timer()
        encoded, declared = encode_head(self.head, status, headers, len(body))
        if has_no_body(self.head, status):
            body = b""
        elif declared != len(body):
            self._start(status, encoded)
            raise _wrong_length(len(body), declared)
        self._state = _COMPLETE
        self.answer(_RESPONSE, STATUS_BYTES[status], encoded, body)

    async def respond_with(self, response: Response) -> None:
        """Send a response of Starlette, and run its background task."""
        body = getattr(response, "body", None)
        if (
            type(response).__call__ is not Response.__call__
            or not isinstance(body, (bytes, memoryview))
            or len(body) >= _LARGE_BYTES
        ):
            await response(self.scope(), self.asgi_receive, self.asgi_send)
            return
        self.respond(response.status_code, response.raw_headers, body)
        if response.background is not None:
            await response.background()

    async def respond_result(self, result: object) -> None:
        """Send the result of a plain deployment; raises TypeError or ValueError without a form."""
        if isinstance(result, Response):
            await self.respond_with(result)
            return
        content_type, body = encode_result(result)
        if len(body) >= _LARGE_BYTES:
            await self.respond_with(Response(body, headers={"content-type": content_type.decode()}))
            return
        self._state = _COMPLETE
        encoded = encode_body_head(self.head, content_type, len(body))
        if self.head.method == "HEAD":
            body = b""
        self.answer(_RESPONSE, STATUS_BYTES[200], encoded, body)

    def answer_error(self, error: BaseException) -> None:
        """Log the error; answer 500, or break off a response that has begun."""
        self.log_error(error, self.label())
        self._answer_failure(500, INTERNAL_SERVER_ERROR)

    def answer_cancelled(self) -> None:
        """End the answer, which has no reader."""
        if self.is_expired:
            text = f"Request {self.request_id} timed out after {self.head.timeout_s}s."
            self._answer_failure(408, text.encode())
        else:
            self._answer_failure(499, b"The client closed the connection.")

    def _answer_failure(self, status: int, text: bytes) -> None:
        if self.is_answered:
            return
        if self._state <= _HEAD:
            self.respond(status, ((b"content-type", TEXT),), text)
        else:
            self._state = _COMPLETE
            self.answer(Kind.ABORT)

    # -- streams

    def _start(self, status: int, encoded: bytes) -> None:
        self._state = _STREAM
        self.send(_START, STATUS_BYTES[status], encoded)

    def _send_head(self, length: int | None = None) -> None:
        self._cancel_head_timer()
        encoded, declared = encode_head(self.head, self._status, self._headers, length)
        self._has_no_body = has_no_body(self.head, self._status)
        self._expected = None if self._has_no_body else declared
        self._is_chunked = (
            declared is None and not self._has_no_body and self.head.http_version != "1.0"
        )
        self._start(self._status, encoded)

    def _send_late(self) -> None:
        """Send a head whose body takes its time, such as that of an event stream."""
        self._head_timer = None
        if self._state == _HEAD and not self.is_cancelled:
            try:
                self._send_head()
            except RuntimeError:  # an invalid header: the next event raises it in the application
                pass

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    async def _send_piece(self, body: bytes | memoryview) -> None:
        if self._state == _HEAD:
            self._send_head()
        if not body or self._has_no_body:
            return
        if self._expected is not None:
            if len(body) > self._expected:
                raise _wrong_length(len(body), self._expected)
            self._expected -= len(body)
        if len(body) > 2 * _PIECE_BYTES:
            await self._send_pieces(memoryview(body))
            return
        if self.window <= 0:
            await self.wait_for_window()
        if self._is_chunked:
            self._send_chunk(b"%x\r\n" % len(body), body, b"\r\n")
        else:
            self._send_chunk(body)

    def _send_chunk(self, *parts: bytes | memoryview) -> None:
        """Send a CHUNK frame; all its bytes count for the window, as the proxy grants them all."""
        for part in parts:
            self.window -= len(part)
        self.send(_CHUNK, *parts)

    async def _send_pieces(self, body: memoryview) -> None:
        if self._is_chunked:
            self._send_chunk(b"%x\r\n" % len(body))
        for start in range(0, len(body), _PIECE_BYTES):
            if self.window <= 0:
                await self.wait_for_window()
            self._send_chunk(body[start : start + _PIECE_BYTES])
        if self._is_chunked:
            self._send_chunk(b"\r\n")

    async def _send_rest(self, body: bytes | memoryview) -> None:
        if self._state == _HEAD:
            self._send_head(len(body))
        await self._send_piece(body)
        if self._expected:
            raise RuntimeError(
                f"the body of the response is {self._expected} bytes shorter than its "
                f"content-length"
            )
        if self._is_chunked:
            self._send_chunk(b"0\r\n\r\n")
        self._state = _COMPLETE
        self.answer(Kind.END)


class PlainCall(HttpCall):
    """A request to a plain deployment, which takes a Request or nothing."""

    __slots__ = ("_user_code",)

    def __init__(
        self, caller: Caller, call_id: int, head: RequestHead, body: bytes, user_code: UserCode
    ) -> None:
        super().__init__(caller, call_id, head, body)
        self._user_code = user_code

    async def handle(self) -> None:
        """Run the method and send its result."""
        if self.head.scheme != "http" and self.head.scheme != "https":
            self.respond(400, ((b"content-type", TEXT),), b"This application has no WebSockets.")
            return
        method = self._user_code.method("__call__")
        if method.takes_argument:
            request = Request(self.scope(), self.asgi_receive, self.asgi_send)
            call: Callable[[], Any] = partial(method.function, request)
        else:
            call = method.function
        if method.kind is MethodKind.ASYNC:
            result = await call()
        elif method.kind is MethodKind.SYNC:
            self.hold()
            result = await self.dispatcher.threads.submit(call, self.release)
        else:
            result = call()
        await self.respond_result(result)


class AsgiCall(HttpCall):
    """A request to an ASGI application."""

    __slots__ = ("_app",)

    def __init__(
        self,
        caller: Caller,
        call_id: int,
        head: RequestHead,
        body: bytes,
        app: AsgiApp,
        lifespan_state: dict[str, Any] | None,
    ) -> None:
        super().__init__(caller, call_id, head, body)
        self._app = app
        self.lifespan_state = lifespan_state

    async def handle(self) -> None:
        """Run the application."""
        await self._app(self.scope(), self.asgi_receive, self.asgi_send)
        if not self.is_answered:
            raise RuntimeError(
                "the ASGI application returned without completing its response"
                if self._state
                else "the ASGI application returned without a response"
            )


def _wrong_length(length: int, declared: int | None) -> RuntimeError:
    return RuntimeError(
        f"the body of the response has {length} bytes, but its content-length says {declared}"
    )
