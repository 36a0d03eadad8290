"""`RequestParser`: bytes of a client -> heads and bodies of requests, within the limits.

The parsing is llhttp's (`httptools`), which refuses ambiguous framing: Content-Length together with
chunked encoding, several lengths, folded headers, line feeds without carriage returns. It has no
limits; they are here, as are the refusals of a missing or repeated Host, HTTP/0.9 and CONNECT.
Requests to upgrade to anything but a WebSocket are parsed as if they had no Upgrade header.
"""

from __future__ import annotations

import logging
import re
from typing import Protocol

import httptools

from syncline.serve.proxy.limits import HttpLimits

logger = logging.getLogger("syncline.serve")

SLICE_BYTES = 16_384
"""Bytes of heads that are parsed together."""
_FRAMING_PER_BYTE = 8
"""Bytes of chunk framing that are allowed for each byte of a chunked body."""
_SPECIAL_HEADERS = frozenset(
    {
        b"content-length",
        b"expect",
        b"host",
        b"idempotency-key",
        b"serve-multiplexed-model-id",
        b"serve_multiplexed_model_id",
        b"transfer-encoding",
        b"upgrade",
        b"x-request-disconnect-disabled",
        b"x-request-id",
        b"x-request-timeout-seconds",
        b"x-session-id",
    }
)
"""Headers that the proxy reads."""
_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+;=%\-]*(:[0-9]*)?|\[[0-9A-Fa-f:.]+\](:[0-9]*)?")
_KNOWN_HOSTS = 1024


class BadRequest(Exception):
    """The request is refused, and the connection closed after the response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Receiver(Protocol):
    """Takes the requests of one connection. All methods may raise BadRequest."""

    def on_head(self, parser: RequestParser) -> None:
        """Take a complete head from the parser's attributes."""

    def on_body(self, piece: bytes) -> None:
        """Take a piece of the body."""

    def on_end(self) -> None:
        """Record the end of the request."""


class _Nobody:
    """Receiver of a closed parser."""

    def on_head(self, parser: RequestParser) -> None:
        pass

    def on_body(self, piece: bytes) -> None:
        pass

    def on_end(self) -> None:
        pass


_NOBODY = _Nobody()


class RequestParser:
    """Parses the requests of one connection. The attributes describe the current request."""

    __slots__ = (
        "_body_bytes",
        "_fed_bytes",
        "_feeding_bytes",
        "_has_begun",
        "_head_bound",
        "_held",
        "_host_repeated",
        "_is_chunked",
        "_known_hosts",
        "_limits",
        "_parser",
        "_receiver",
        "_url",
        "has_body",
        "headers",
        "http_version",
        "is_held",
        "is_websocket",
        "keep_alive",
        "method",
        "path",
        "phase",
        "special",
        "target",
    )

    IDLE, HEAD, BODY = range(3)

    def __init__(self, limits: HttpLimits, receiver: Receiver, known_hosts: set[bytes]) -> None:
        """`known_hosts` caches valid values of the Host header; parsers may share it."""
        self._limits = limits
        self._receiver: Receiver = receiver
        self._known_hosts = known_hosts
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._url = b""
        self._held = b""
        self._feeding_bytes = 0  # length of the data that is parsed now
        self._has_begun = False  # True if a request began in the data that is parsed now
        self._fed_bytes = 0  # of the current request, without the data in which it began
        self._head_bound = 0  # upper bound of the bytes of the current head
        self._body_bytes = 0
        self._host_repeated = False
        self._is_chunked = False
        self.phase = self.IDLE
        """IDLE between requests, HEAD or BODY within one."""
        self.method = ""
        self.target = b""
        """Path and query string in origin form."""
        self.path = b""
        """Path before percent-decoding; ASCII."""
        self.http_version = ""
        self.headers: list[tuple[bytes, bytes]] = []
        """In their order, names in lower case."""
        self.special: dict[bytes, bytes] = {}
        """Values of the headers that the proxy reads."""
        self.keep_alive = False
        """True if the client accepts another response on this connection."""
        self.has_body = False
        self.is_websocket = False
        """True for a WebSocket handshake."""
        self.is_held = False
        """Set by the receiver while it takes no more requests."""

    def feed(self, data: bytes) -> bytes:
        """Parse bytes; return those after a WebSocket handshake, which belong to its protocol.

        Raises BadRequest. Then, and after a handshake, the parser takes no more bytes. While
        `is_held` is True, bytes are kept for the next call.
        """
        if self._held:
            data, self._held = self._held + data, b""
        start = 0
        while start < len(data):
            if self.is_held:
                self._held = data[start:]
                break
            end = len(data) if self.phase == self.BODY else start + SLICE_BYTES
            rest = self._feed(data[start:end])
            if self.is_websocket and self.phase == self.IDLE:
                return rest + data[end:]
            start = end
        return b""

    def close(self) -> None:
        """Take no more bytes; release the objects that refer to this one."""
        self._parser = None
        self._receiver = _NOBODY

    def _feed(self, data: bytes) -> bytes:
        parser = self._parser
        if parser is None:
            return b""
        self._feeding_bytes = len(data)
        self._has_begun = False
        is_continued = self.phase != self.IDLE
        if is_continued:
            self._head_bound += len(data)
        try:
            while True:
                try:
                    parser.feed_data(data)
                    break
                except httptools.HttpParserUpgrade as upgrade:
                    rest = data[upgrade.args[0] :]
                    if self.is_websocket:
                        return rest
                    data = self._without_upgrade(rest)
                    self._parser = parser = httptools.HttpRequestParser(self)
        except httptools.HttpParserCallbackError as error:
            raise _cause(error) from error
        except httptools.HttpParserError as error:
            raise BadRequest(400, "Invalid HTTP request received.") from error
        if is_continued and not self._has_begun and self.phase != self.IDLE:
            self._fed_bytes += len(data)
            self._check_fed()
        return b""

    def _without_upgrade(self, rest: bytes) -> bytes:
        # llhttp stops after a head with an Upgrade header, even if a body follows.
        lines = [b"%s %s HTTP/%s" % (self.method.encode(), self._url, self.http_version.encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join((*lines, b"", rest))

    def _check_fed(self) -> None:
        """Limit the bytes of an incomplete head, and the framing of a chunked body."""
        limit = self._limits.head_bytes
        if self.phase == self.HEAD:
            if self._fed_bytes > limit:
                raise _head_too_large(limit)
        elif self._is_chunked and self._fed_bytes > limit + _FRAMING_PER_BYTE * self._body_bytes:
            raise BadRequest(400, "The chunks of the request body are too small.")

    # -- callbacks of httptools

    def on_message_begin(self) -> None:
        """Begin a request."""
        self.phase = self.HEAD
        self.headers = []
        self.special = {}
        self._url = b""
        self._has_begun = True
        self._fed_bytes = 0
        self._head_bound = self._feeding_bytes
        self._host_repeated = False

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        self._url = self._url + url if self._url else url
        if len(self._url) > self._limits.target_bytes:
            raise BadRequest(
                414, f"The request target is longer than {self._limits.target_bytes} bytes."
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer of a chunked body, which is dropped."""
        if self.phase == self.BODY:
            return
        name = name.lower()
        if name in _SPECIAL_HEADERS:
            if name in self.special and name == b"host":
                self._host_repeated = True
            self.special[name] = value
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Check the head and pass it on."""
        parser = self._parser
        assert parser is not None
        special = self.special
        self.method = parser.get_method().decode()
        self.http_version = version = parser.get_http_version()
        self._check_head(version)
        if self._url[0] == 47 and b"#" not in self._url:
            self.target = self._url
            self.path = self._url.partition(b"?")[0]
        else:
            self._read_other_target()
        if not self.path.isascii():
            raise BadRequest(400, "Invalid HTTP request received: the path is not ASCII.")
        self._is_chunked = b"transfer-encoding" in special
        self.has_body = self._is_chunked or special.get(b"content-length", b"0") != b"0"
        self.keep_alive = parser.should_keep_alive()
        self.is_websocket = False
        if b"upgrade" in special and parser.should_upgrade():
            self.is_websocket = self._is_websocket_handshake()
            if not self.is_websocket:
                return
        self.phase = self.BODY
        self._body_bytes = 0
        self._receiver.on_head(self)

    def on_body(self, piece: bytes) -> None:
        """Pass a piece of the body on."""
        self._body_bytes += len(piece)
        self._receiver.on_body(piece)

    def on_message_complete(self) -> None:
        """Record the end of a request."""
        if self.phase == self.BODY:
            self.phase = self.IDLE
            self._receiver.on_end()

    # -- checks

    def _check_head(self, version: str) -> None:
        limits = self._limits
        if len(self.headers) > limits.header_lines:
            raise BadRequest(431, f"The request has more than {limits.header_lines} headers.")
        if self._head_bound > limits.head_bytes:
            size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > limits.head_bytes:
                raise _head_too_large(limits.head_bytes)
        if version != "1.1" and version != "1.0":
            status = 400 if version == "0.9" else 505
            raise BadRequest(status, f"HTTP/{version} is not supported, only HTTP/1.1.")
        if self.method == "CONNECT":
            raise BadRequest(405, "This server is not a proxy for CONNECT.")
        host = self.special.get(b"host")
        if host is None:
            if version == "1.1":
                raise BadRequest(400, "The request has no Host header.")
        elif self._host_repeated:
            raise BadRequest(400, "The request has more than one Host header.")
        elif host not in self._known_hosts:
            self._check_host(host)

    def _check_host(self, host: bytes) -> None:
        if _HOST.fullmatch(host) is None:
            raise BadRequest(400, "The Host header is not a host name with an optional port.")
        if len(self._known_hosts) >= _KNOWN_HOSTS:
            self._known_hosts.clear()
        self._known_hosts.add(host)

    def _read_other_target(self) -> None:
        """Read a target that is a complete URL or has a fragment."""
        try:
            url = httptools.parse_url(self._url)
        except httptools.HttpParserInvalidURLError as error:
            raise BadRequest(400, "The request target is not a path.") from error
        self.path = url.path or b"/"
        if self.path[0] != 47:  # "*"
            raise BadRequest(400, "The request target is not a path.")
        self.target = self.path if url.query is None else self.path + b"?" + url.query

    def _is_websocket_handshake(self) -> bool:
        names = self.special[b"upgrade"].lower().split(b",")
        return (
            self.method == "GET"
            and self.http_version == "1.1"
            and any(name.strip() == b"websocket" for name in names)
        )


def _head_too_large(limit: int) -> BadRequest:
    return BadRequest(431, f"The head of the request is longer than {limit} bytes.")


def _cause(error: httptools.HttpParserCallbackError) -> BadRequest:
    """Return the exception of a callback."""
    cause = error.__context__
    if isinstance(cause, BadRequest):
        return cause
    logger.error("The proxy failed to handle a request.", exc_info=cause or error)
    return BadRequest(500, "Internal Server Error")
