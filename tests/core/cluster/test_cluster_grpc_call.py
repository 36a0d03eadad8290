"""One gRPC call over our own connection: valid replies, and all kinds of other servers."""

from __future__ import annotations

import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from syncline.core.cluster import grpc_call

CALL = grpc_call.Call(
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


def reply(*frames):
    return io.BufferedReader(io.BytesIO(frame(SETTINGS, b"", stream=0) + b"".join(frames)))


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Run a server for one connection and yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run():
            connection, _ = listening.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(LIMIT_S)


def test_a_reply_in_parts_is_joined():
    whole = message(b"the answer")
    trailer = frame(HEADERS, b"@\x0bgrpc-status\x010", flags=5)
    answer = grpc_call.read_answer(
        reply(
            frame(HEADERS, OK_HEADERS, flags=4),
            frame(DATA, whole[:7]),
            frame(DATA, whole[7:]),
            trailer,
        )
    )
    assert answer == grpc_call.Answer(status=0, body=b"the answer")


def test_a_refusal_has_its_status():
    refusal = OK_HEADERS + b"\x00\x0bgrpc-status\x0216\x00\x0cgrpc-message\x05token"
    assert grpc_call.read_answer(reply(frame(HEADERS, refusal, flags=5))) == grpc_call.Answer(
        status=grpc_call.UNAUTHENTICATED, body=b""
    )


def test_frames_of_the_connection_are_skipped():
    ping = frame(6, b"12345678", stream=0)
    answer = grpc_call.read_answer(
        reply(ping, frame(DATA, message(b"a")), frame(HEADERS, b"@\x0bgrpc-status\x010", flags=5))
    )
    assert answer.body == b"a"


def test_an_http_2_server_without_grpc_is_refused():
    with pytest.raises(grpc_call.NotGrpcError, match="does not know the call"):
        grpc_call.read_answer(reply(frame(HEADERS, b"\x8d\x76\x84", flags=5)))


def test_a_connection_that_ends_without_a_reply_is_an_error():
    with pytest.raises(ConnectionError, match="closed the connection"):
        grpc_call.read_answer(reply(frame(HEADERS, OK_HEADERS, flags=4)))


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nServer: x", r"HTTP/1\.1 400 Bad Request"),
        (b"-ERR unknown command 'PRI'\r\n", "-ERR unknown command"),
        (b"", "without a reply"),
    ],
)
def test_other_kinds_of_servers_are_quoted(sent, message):
    with pytest.raises(grpc_call.NotGrpcError, match=message):
        grpc_call.read_answer(io.BufferedReader(io.BytesIO(sent)))


def test_a_call_over_a_socket():
    received = bytearray()

    def serve(connection):
        while CALL.body not in received:
            received.extend(connection.recv(4096))
        connection.sendall(frame(SETTINGS, b"", stream=0) + frame(DATA, message(b"a"), flags=1))

    with server(serve) as port:
        assert grpc_call.call_server("127.0.0.1", port, CALL, limit_s=LIMIT_S).body == b"a"
    assert received.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert b"/package.Service/Method" in received
    assert b"Bearer " + b"x" * 200 in received


def test_a_silent_server_times_out():
    done = threading.Event()
    with server(lambda connection: done.wait(LIMIT_S)) as port:
        with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s"):
            grpc_call.call_server("127.0.0.1", port, CALL, limit_s=0.2)
        done.set()


def test_a_slow_name_lookup_times_out(monkeypatch):
    done = threading.Event()

    def look_up(*args, **kwargs):
        done.wait(LIMIT_S)
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "create_connection", look_up)
    with pytest.raises(TimeoutError):
        grpc_call.call_server("slow.example", 1, CALL, limit_s=0.2)
    done.set()


def test_a_closed_port_is_refused_immediately():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        grpc_call.call_server("127.0.0.1", port, CALL, limit_s=LIMIT_S)
