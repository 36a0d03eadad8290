"""Malformed, oversized and ambiguous requests."""

import logging
import random

import pytest

from syncline.serve.proxy.limits import HttpLimits
from tests.serve.proxy.fakes import GET, Client, FakeLink, post, respond

HOST = b"Host: a\r\n"
LIMITS = HttpLimits(body_bytes=1000, whole_body_bytes=500)
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

MALFORMED: dict[str, tuple[bytes, int]] = {
    # ambiguous framing
    "length and chunks": (CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n", 400),
    "chunks and length": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    "two lengths": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        400,
    ),
    "two equal lengths": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        400,
    ),
    "list of lengths": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n", 400),
    "negative length": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
    "signed length": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n", 400),
    "hexadecimal length": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n", 400),
    "huge length": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        400,
    ),
    "many zeros in the length": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"0" * 5000 + b"5\r\n\r\n",
        400,
    ),
    "empty length": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\n", 400),
    "unknown encoding": (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
    "chunked twice": (CHUNKED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n", 400),
    "chunked before another": (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        400,
    ),
    "misspelled chunked": (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
        400,
    ),
    "bad chunk size": (CHUNKED + b"xyz\r\nabc\r\n0\r\n\r\n", 400),
    "negative chunk size": (CHUNKED + b"-1\r\nabc\r\n0\r\n\r\n", 400),
    "chunk size with 0x": (CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n", 400),
    "huge chunk size": (CHUNKED + b"fffffffffffffffff\r\nabc", 400),
    "chunk longer than its size": (CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n", 400),
    "chunk size with a line feed only": (CHUNKED + b"3\nabc\r\n0\r\n\r\n", 400),
    "chunk without its end": (CHUNKED + b"3\r\nabc0\r\n\r\n", 400),
    # lines and headers
    "folded header": (b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n", 400),
    "line feeds only": (b"GET / HTTP/1.1\nHost: a\n\n", 400),
    "space before the colon": (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    "empty header name": (b"GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", 400),
    "header without a colon": (b"GET / HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n", 400),
    "space in a header name": (b"GET / HTTP/1.1\r\nHost: a\r\nX Y: 1\r\n\r\n", 400),
    "NUL in a header": (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
    "carriage return in a header": (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400),
    "NUL in the path": (b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "path that is not ASCII": (b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "no path": (b"GET HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "relative path": (b"GET x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "asterisk": (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "space in the path": (b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "unknown method": (b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "lower case method": (b"get / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "bytes of TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    # versions and methods
    "HTTP/0.9": (b"GET /\r\n\r\n", 400),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "HTTP/2.0": (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    "HTTP/1.2": (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 400),
    "HTTP/11": (b"GET / HTTP/11\r\nHost: a\r\n\r\n", 400),
    "other protocol": (b"GET / HTTQ/1.1\r\nHost: a\r\n\r\n", 400),
    "CONNECT": (b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    # Host
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    "Host with a list": (b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
    "Host with a path": (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    "Host with a user": (b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
    "Host with a bad port": (b"GET / HTTP/1.1\r\nHost: a:x\r\n\r\n", 400),
    # sizes
    "long target": (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    "long header": (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    "endless header": (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000, 431),
    "endless header name": (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"x" * 100_000, 431),
    "many headers": (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: 1\r\n" * 100 + b"\r\n", 431),
    "announced long body": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n", 413),
    "chunked long body": (
        CHUNKED + b"64\r\n" + b"x" * 100 + b"\r\n" + b"385\r\n" + b"x" * 901,
        413,
    ),
    "long chunk extension": (CHUNKED + b"1;" + b"x" * 200_000, 400),
    "endless trailers": (CHUNKED + b"0\r\n" + b"X: 1\r\n" * 30_000, 400),
}


def finish(client: Client) -> list[int]:
    """Answer everything and return the statuses of the responses."""
    answered = 0
    while answered < len(client.link.calls):
        call = client.link.calls[answered]
        answered += 1
        if not call.is_done and call.stream is None:
            respond(call)
    return [each.status for each in client.responses() if each.status >= 200]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        (name, step)
        for name, (data, _) in MALFORMED.items()
        for step in (1_000_000, 1000, 1)
        if step > 1 or len(data) < 3000
    ],
)
def test_malformed_request_is_refused_and_the_connection_closed(name, step) -> None:
    data, status = MALFORMED[name]
    client = Client(LIMITS)
    for start in range(0, len(data), step):
        client.send(data[start : start + step])
    assert finish(client) == [status]
    assert client.is_closed
    assert client.responses()[-1].headers["connection"] == "close"


@pytest.mark.parametrize(
    "host", [b"", b"a", b"a:80", b"a.b-c_d:8000", b"127.0.0.1:80", b"[::1]:8000", b"[fe80::1]"]
)
def test_valid_hosts(host) -> None:
    client = Client()
    client.send(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host)
    assert finish(client) == [200]


def test_refusal_after_a_good_request_keeps_its_response() -> None:
    for data, status in MALFORMED.values():
        client = Client(LIMITS)
        client.send(GET)
        client.send(data)
        assert finish(client) == [200, status]


def test_chunks_that_follow_a_long_body_in_one_read_are_not_too_small() -> None:
    client = Client()
    first = post(b"x" * 200_000)
    client.send(first[:1000])
    client.send(first[1000:] + CHUNKED + b"1\r\na\r\n")
    client.send(b"0\r\n\r\n")
    assert finish(client) == [200, 200]


def test_refusal_in_a_streamed_body_cancels_the_call() -> None:
    client = Client(HttpLimits(whole_body_bytes=100))
    client.send(CHUNKED + b"c8\r\n" + b"x" * 200 + b"\r\n")
    assert client.request[0].more_body
    client.send(b"zzz\r\n")
    assert client.link.cancelled == [client.call]
    assert client.response.status == 400


def test_refusal_while_a_response_streams_breaks_it_off() -> None:
    client = Client(HttpLimits(whole_body_bytes=100))
    client.send(CHUNKED + b"c8\r\n" + b"x" * 200 + b"\r\n")
    client.call.on_frame(20 + 1, b"\xc8\0HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    client.send(b"zzz\r\n")
    assert client.is_closed
    assert b" 400 " not in client.transport.written


def test_error_in_the_proxy_is_500_and_logged(caplog) -> None:
    client = Client()

    def fail(call) -> None:
        raise ZeroDivisionError

    client.link.on_submit = fail
    with caplog.at_level(logging.ERROR):
        client.send(GET)
    assert client.response.status == 500
    assert client.link.cancelled == [client.call]
    assert "ZeroDivisionError" in caplog.text


SAMPLES = [
    b"GET /path?x=1 HTTP/1.1\r\nHost: a.com:80\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n",
    post(b"0123456789", b"Content-Type: text/plain", path=b"/a%20b"),
    CHUNKED + b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nTrailer: x\r\n\r\n",
]


def mutations(request: bytes) -> list[bytes]:
    """The request with each byte missing, doubled, and with each of its bits flipped."""
    changed = []
    for position in range(len(request)):
        before, byte, after = request[:position], request[position], request[position + 1 :]
        changed.append(before + after)
        changed.append(before + bytes([byte, byte]) + after)
        changed += [before + bytes([byte ^ 1 << bit]) + after for bit in range(8)]
    return changed


@pytest.mark.parametrize("request_", SAMPLES)
def test_changed_bytes_give_a_response_or_an_incomplete_request(request_, caplog) -> None:
    random_ = random.Random(1)
    for changed in mutations(request_):
        statuses = []
        split = random_.randrange(len(changed))
        for pieces in ((changed,), (changed[:split], changed[split:])):
            client = Client()
            for piece in pieces:
                client.send(piece)
            statuses.append(finish(client))
            assert set(statuses[-1]) <= {200, 400, 405, 413, 431, 505}
            if statuses[-1] and statuses[-1][-1] >= 400:
                assert client.is_closed
        assert statuses[0] == statuses[1], (changed, split)
    assert not caplog.records


def test_random_bytes_never_break_the_proxy(caplog) -> None:
    random_ = random.Random(2)
    words = [*(b"GET POST / HTTP/1.1 Host: a : \r\n \n \r\n\r\n 0 5 ff".split(b" ")), b"\r\n", b" "]
    words += [
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: 3\r\n",
        GET,
        b"\0",
        b"Upgrade: x",
    ]
    words += [b"Connection: upgrade\r\n", b"Expect: 100-continue\r\n", b"Upgrade: websocket\r\n"]
    link = FakeLink()
    for _ in range(3000):
        client = Client(LIMITS, link=link)
        link.calls.clear()
        for _ in range(random_.randrange(1, 4)):
            client.send(b"".join(random_.choices(words, k=random_.randrange(1, 12))))
            if not client.transport.reads:
                break
        finish(client)
        client.leave()
        assert client.server.connection_count == 0
    assert not caplog.records
