"""One question over a connection of our own: answers as servers give them, and everything that is
none.
"""

from __future__ import annotations

import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from syncline.core.cluster import probe

CALL = probe.Call(
    path="/package.Service/Method",
    body=b"question",
    headers={"authorization": "Bearer " + "x" * 200},
)
SETTINGS, HEADERS, DATA, GO_AWAY = 4, 1, 0, 7
OK_HEADERS = b"\x88@\x0ccontent-type\x10application/grpc"
LIMIT_S = 30.0


def frame(kind, payload, *, flags=0, stream=1):
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + payload
    )


def message(body):
    return b"\0" + struct.pack(">I", len(body)) + body


def said(*frames):
    return io.BufferedReader(io.BytesIO(frame(SETTINGS, b"", stream=0) + b"".join(frames)))


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server for one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run():
            connection, _ = listening.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(LIMIT_S)


def test_an_answer_in_parts_is_put_together():
    whole = message(b"the answer")
    trailer = frame(HEADERS, b"@\x0bgrpc-status\x010", flags=5)
    answer = probe.read_answer(
        said(
            frame(HEADERS, OK_HEADERS, flags=4),
            frame(DATA, whole[:7]),
            frame(DATA, whole[7:]),
            trailer,
        )
    )
    assert answer == probe.Answer(status=0, body=b"the answer")


def test_a_refusal_has_its_status():
    refusal = OK_HEADERS + b"\x00\x0bgrpc-status\x0216\x00\x0cgrpc-message\x05token"
    assert probe.read_answer(said(frame(HEADERS, refusal, flags=5))) == probe.Answer(
        status=probe.UNAUTHENTICATED, body=b""
    )


def test_what_is_said_of_the_connection_is_no_answer():
    ping = frame(6, b"12345678", stream=0)
    answer = probe.read_answer(
        said(ping, frame(DATA, message(b"a")), frame(HEADERS, b"@\x0bgrpc-status\x010", flags=5))
    )
    assert answer.body == b"a"


def test_a_server_of_http_2_that_knows_no_grpc_is_another_server():
    with pytest.raises(probe.AnotherServer, match="does not know the call"):
        probe.read_answer(said(frame(HEADERS, b"\x8d\x76\x84", flags=5)))


def test_a_connection_that_ends_without_an_answer_is_an_error():
    with pytest.raises(ConnectionError, match="closed the connection"):
        probe.read_answer(said(frame(HEADERS, OK_HEADERS, flags=4)))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nServer: x", r"HTTP/1\.1 400 Bad Request"),
        (b"-ERR unknown command 'PRI'\r\n", "-ERR unknown command"),
        (b"", "without a word"),
    ],
)
def test_other_kinds_of_servers_are_quoted(words, told):
    with pytest.raises(probe.AnotherServer, match=told):
        probe.read_answer(io.BufferedReader(io.BytesIO(words)))


def test_a_call_is_asked_and_answered_over_a_socket():
    asked = bytearray()

    def serve(connection):
        while CALL.body not in asked:
            asked.extend(connection.recv(4096))
        connection.sendall(frame(SETTINGS, b"", stream=0) + frame(DATA, message(b"a"), flags=1))

    with server(serve) as port:
        assert probe.ask("127.0.0.1", port, CALL, limit_s=LIMIT_S).body == b"a"
    assert asked.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert b"/package.Service/Method" in asked
    assert b"Bearer " + b"x" * 200 in asked


def test_a_server_that_says_nothing_is_waited_for_no_longer_than_the_limit():
    done = threading.Event()
    with server(lambda connection: done.wait(LIMIT_S)) as port:
        with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s"):
            probe.ask("127.0.0.1", port, CALL, limit_s=0.2)
        done.set()


def test_a_name_that_takes_long_to_look_up_is_waited_for_no_longer_than_the_limit(monkeypatch):
    done = threading.Event()

    def look_up(*args, **kwargs):
        done.wait(LIMIT_S)
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "create_connection", look_up)
    with pytest.raises(TimeoutError):
        probe.ask("slow.example", 1, CALL, limit_s=0.2)
    done.set()


def test_nobody_at_the_port_is_told_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        probe.ask("127.0.0.1", port, CALL, limit_s=LIMIT_S)
