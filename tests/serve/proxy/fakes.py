"""A client's connection to the proxy without sockets: fake transport, fake link, manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from syncline.serve.proxy.http_protocol import HttpConnection
from syncline.serve.proxy.limits import HttpLimits
from syncline.serve.proxy.requests import HttpCall
from syncline.serve.proxy.routes import RouteTable
from syncline.serve.proxy.server import HttpServer
from syncline.serve.wire.frames import (
    Kind,
    RequestHead,
    decode_request,
    decode_window,
    encode_status,
    encode_window,
)
from syncline.serve.wire.routes import ApplicationRoute, DeploymentId, DeploymentRoute, TableUpdate


class FakeTransport(asyncio.Transport):
    """Keeps the written bytes. `accepts=False` simulates a client that does not read."""

    def __init__(self, *, can_write_eof: bool = True, is_tls: bool = False) -> None:
        super().__init__(
            {
                "peername": ("10.0.0.9", 5555),
                "sockname": ("10.0.0.1", 8000),
                **({"sslcontext": object()} if is_tls else {}),
            }
        )
        self.written = bytearray()
        self.is_closed = False
        self.is_aborted = False
        self.has_written_eof = False
        self.reads = True
        self.unsent = 0
        self._can_write_eof = can_write_eof

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed, "write after close"
        assert not self.has_written_eof, "write after write_eof"
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def can_write_eof(self) -> bool:
        return self._can_write_eof

    def write_eof(self) -> None:
        self.has_written_eof = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


class Sent(NamedTuple):
    """A frame that the proxy sent to the replica after the first one."""

    call: HttpCall
    kind: int
    payload: bytes


class FakeLink:
    """Takes the calls of the proxy; the test answers them."""

    def __init__(self) -> None:
        self.calls: list[HttpCall] = []
        self.cancelled: list[HttpCall] = []
        self.frames: list[Sent] = []
        self.on_submit: Callable[[HttpCall], None] = self.start

    def submit(self, call: HttpCall) -> None:
        self.calls.append(call)
        call.call_id = len(self.calls)
        self.on_submit(call)

    def start(self, call: HttpCall, replica_id: str = "app#Echo#1") -> None:
        call.replica_id = replica_id
        call.on_started(replica_id)

    def cancel(self, call: HttpCall) -> None:
        self.cancelled.append(call)

    def send(self, call: HttpCall, kind: int, *parts: bytes | memoryview) -> None:
        if call.replica_id:
            self.frames.append(Sent(call, kind, b"".join(parts)))

    # -- for tests

    def body(self, call: HttpCall) -> bytes:
        """The BODY frames of a call."""
        return b"".join(
            each.payload for each in self.frames if each.call is call and each.kind == Kind.BODY
        )

    def granted(self) -> int:
        return sum(decode_window(each.payload) for each in self.frames if each.kind == Kind.WINDOW)


def request_of(call: HttpCall) -> tuple[RequestHead, bytes]:
    """The first frame of a call, as the replica decodes it."""
    return decode_request(b"".join(call.parts))


def respond(call: HttpCall, body: bytes = b"hello", status: int = 200) -> None:
    """Answer like a replica, in one frame."""
    head, _ = request_of(call)
    end = b"\r\n" if head.keep_alive else b"connection: close\r\n\r\n"
    shown = b"" if head.method == "HEAD" else body
    call.on_frame(
        Kind.RESPONSE,
        encode_status(status)
        + b"HTTP/1.1 %d Status\r\ncontent-length: %d\r\n" % (status, len(body))
        + end
        + shown,
    )


def start_stream(call: HttpCall, status: int = 200, headers: bytes = b"") -> None:
    call.on_frame(
        Kind.START,
        encode_status(status)
        + b"HTTP/1.1 %d Status\r\ntransfer-encoding: chunked\r\n%b\r\n" % (status, headers),
    )


def chunk(call: HttpCall, data: bytes) -> None:
    call.on_frame(Kind.CHUNK, b"%x\r\n%b\r\n" % (len(data), data))


def grant(call: HttpCall, size: int) -> None:
    call.on_frame(Kind.WINDOW, encode_window(size))


class Response(NamedTuple):
    """A response as the client reads it."""

    status: int
    headers: dict[str, str]
    body: bytes


def read_responses(data: bytes, heads: tuple[int, ...] = ()) -> list[Response]:
    """Split bytes into responses; `heads` are the indexes of the answers to HEAD requests."""
    found: list[Response] = []
    final = 0
    while data:
        head, separator, data = data.partition(b"\r\n\r\n")
        assert separator, f"incomplete head {head!r}"
        line, *lines = head.decode("latin-1").split("\r\n")
        version, status = line.split(" ")[:2]
        assert version == "HTTP/1.1"
        headers = dict(each.split(": ", 1) for each in lines)
        body = b""
        if int(status) >= 200:
            if final not in heads:
                body, data = _read_body(headers, data)
            final += 1
        found.append(Response(int(status), headers, body))
    return found


def _read_body(headers: dict[str, str], data: bytes) -> tuple[bytes, bytes]:
    if headers.get("transfer-encoding") != "chunked":
        length = int(headers.get("content-length", "0"))
        assert len(data) >= length, "the body is too short"
        return data[:length], data[length:]
    body = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        body, end, data = body + data[:length], data[length : length + 2], data[length + 2 :]
        assert end == b"\r\n"
        if not length:
            return body, data


def make_table(
    *prefixes: str, root_path: str = "", idempotent: bool = False, is_ready: bool = True
) -> RouteTable:
    """A table with an application for each prefix, named after it."""
    table = RouteTable(root_path)
    if is_ready:
        ids = {prefix: DeploymentId(prefix.strip("/") or "root", "Echo") for prefix in prefixes}
        table.update(
            TableUpdate(
                version=1,
                is_complete=True,
                deployments=tuple(
                    DeploymentRoute(id=id, idempotent=idempotent) for id in ids.values()
                ),
                applications=tuple(
                    ApplicationRoute(name=id.app, route_prefix=prefix, ingress=id, is_asgi=False)
                    for prefix, id in ids.items()
                ),
            )
        )
    return table


class Client:
    """A connection with its server. Without arguments, an application at `/`."""

    def __init__(
        self,
        limits: HttpLimits | None = None,
        *,
        table: RouteTable | None = None,
        request_timeout_s: float | None = None,
        root_path: str = "",
        transport: FakeTransport | None = None,
        server: HttpServer | None = None,
        link: FakeLink | None = None,
    ) -> None:
        self.time = 1000.0
        self.link = link or FakeLink()
        self.server = server or HttpServer(
            self.link,
            table or make_table("/"),
            limits or HttpLimits(),
            clock=lambda: self.time,
            request_timeout_s=request_timeout_s,
            root_path=root_path,
        )
        self.transport = transport or FakeTransport()
        self.connection = HttpConnection(self.server)
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        """Let bytes arrive, as long as the proxy reads."""
        assert self.transport.reads, "the proxy does not read"
        if not self.transport.is_closed:
            self.connection.data_received(data)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with a sweep each second."""
        end = self.time + seconds
        while self.time < end:
            self.time = min(self.time + 1, end)
            self.server.sweep()

    def leave(self) -> None:
        """Close the client's side."""
        self.connection.eof_received()
        self.connection.connection_lost(None)

    @property
    def call(self) -> HttpCall:
        """The last call that the proxy submitted."""
        return self.link.calls[-1]

    @property
    def request(self) -> tuple[RequestHead, bytes]:
        return request_of(self.call)

    @property
    def is_closed(self) -> bool:
        """True if the proxy ended its side."""
        transport = self.transport
        return transport.is_closed or transport.is_aborted or transport.has_written_eof

    def responses(self, heads: tuple[int, ...] = ()) -> list[Response]:
        return read_responses(bytes(self.transport.written), heads)

    @property
    def response(self) -> Response:
        """The only response."""
        (found,) = self.responses()
        return found


GET = b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"


def post(body: bytes, *headers: bytes, path: bytes = b"/") -> bytes:
    """A POST request with a content length."""
    lines = [b"POST %b HTTP/1.1" % path, b"Host: example.com", b"Content-Length: %d" % len(body)]
    return b"\r\n".join((*lines, *headers, b"", body))
