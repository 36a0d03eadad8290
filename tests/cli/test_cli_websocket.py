"""The receiving end of a WebSocket: messages whole and in parts, the handshake, limits, the
server's end.
"""

import base64
import hashlib
import socket
import threading

import pytest

from syncline.cli.websocket import HandshakeRefused, WebSocket


def frame(opcode, payload, is_final=True):
    length = len(payload)
    wide = 0 if length < 126 else 2 if length < 65_536 else 8
    written = (
        bytes([length])
        if wide == 0
        else bytes([126 if wide == 2 else 127]) + length.to_bytes(wide, "big")
    )
    return bytes([(0x80 if is_final else 0) | opcode]) + written + payload


@pytest.fixture
def serve():
    """Starts a server that answers one handshake with what a function of the key gives, sends
    bytes, and keeps what the client says.
    """
    servers = []

    def start(sent, answer=None, close=True):
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)
        said = []

        def run():
            connection, _ = server.accept()
            with connection:
                asked = b""
                while b"\r\n\r\n" not in asked:
                    asked += connection.recv(4096)
                key = asked.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0].decode()
                accept = base64.b64encode(
                    hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
                ).decode()
                accepted = [
                    "HTTP/1.1 101 Switching Protocols",
                    "Upgrade: websocket",
                    "Connection: Upgrade",
                    f"SEC-WebSocket-Accept: {accept}",
                ]
                head = answer or "\r\n".join([*accepted, "", ""])
                connection.sendall(
                    head.encode() + sent
                )  # at once, so that the first frames come with the answer
                connection.settimeout(60)
                while close is False and (data := connection.recv(4096)):
                    said.append(data)

        threading.Thread(target=run, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/tail", said

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize("length", [0, 125, 126, 65_535, 65_536])
def test_message_of_any_length_comes_whole(serve, length):
    payload = bytes(97 + index % 26 for index in range(length))
    url, _ = serve(frame(1, payload) + frame(1, b"next"), close=False)
    with WebSocket(url, {}, 60) as connection:
        assert connection.receive(60) == payload.decode()
        assert connection.receive(60) == "next"


def test_messages_come_in_order_and_parts_are_put_together(serve):
    sent = (
        frame(1, b"one")
        + frame(1, b"tw\xc3", False)
        + frame(9, b"alive?")
        + frame(0, b"\xb6")
        + frame(8, b"")
    )
    url, said = serve(sent, close=False)
    with WebSocket(url, {"Authorization": "Bearer x"}, 60) as connection:
        assert connection.receive(60) == "one"
        assert connection.receive(60) == "tw\u00f6"
        with pytest.raises(EOFError):
            connection.receive(60)
    assert said == [] or said[0][0] == 0x80 | 10


def test_nothing_within_the_limit_is_no_message_and_nothing_is_lost(serve):
    url, _ = serve(frame(1, b"late")[:3], close=False)
    with WebSocket(url, {}, 60) as connection:
        assert connection.receive(0.01) is None
        assert connection.receive(0.01) is None


def test_connection_that_ends_without_a_word_is_an_end(serve):
    url, _ = serve(frame(1, b"one"))
    with WebSocket(url, {}, 60) as connection:
        assert connection.receive(60) == "one"
        with pytest.raises(EOFError):
            connection.receive(60)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("HTTP/1.1 404 Not Found\r\n\r\n", 404),
        (
            (
                "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection:"
                " Upgrade\r\nSec-WebSocket-Accept: stale\r\n\r\n"
            ),
            0,
        ),
        ("SSH-2.0\r\n\r\n", 0),
    ],
)
def test_server_that_answers_something_else_is_refused(serve, answer, status):
    url, _ = serve(b"", answer)
    with pytest.raises(HandshakeRefused) as caught:
        WebSocket(url, {}, 60)
    assert caught.value.status == status
