"""The receiving end of a WebSocket: frames as they come in pieces, the handshake, limits, the server's end."""

import base64
import hashlib
import socket
import threading

import pytest

from syncline.cli.websocket import Frame, HandshakeRefused, Opcode, WebSocket, masked_frame, take_frame


@pytest.mark.parametrize("length", [0, 125, 126, 65_535, 65_536])
def test_frame_is_taken_once_it_has_come_whole(length):
    payload = bytes(index % 251 for index in range(length))
    wide = 0 if length < 126 else 2 if length < 65_536 else 8
    written = bytes([length]) if wide == 0 else bytes([126 if wide == 2 else 127]) + length.to_bytes(wide, "big")
    sent = b"\x81" + written + payload
    received = bytearray()
    for byte in sent[:20][: len(sent) - 1]:
        received.append(byte)
        assert take_frame(received) is None
    received += sent[len(received) :] + b"next"
    assert take_frame(received) == Frame(opcode=Opcode.TEXT, is_final=True, payload=payload)
    assert received == b"next"


def test_what_a_client_sends_is_masked():
    sent = masked_frame(Opcode.PONG, b"hello")
    assert sent[:2] == bytes([0x80 | 10, 0x80 | 5])
    assert bytes(byte ^ sent[2 + i % 4] for i, byte in enumerate(sent[6:])) == b"hello"


def frame(opcode, payload, is_final=True):
    return bytes([(0x80 if is_final else 0) | opcode, len(payload)]) + payload


@pytest.fixture
def serve():
    """Starts a server that answers one handshake with what a function of the key gives, sends bytes, and keeps what the client says."""
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
                accept = base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()
                head = answer or f"HTTP/1.1 101 Switching Protocols\r\nSEC-WebSocket-Accept: {accept}\r\n\r\n"
                connection.sendall(head.encode() + sent)  # at once, so that the first frames come with the answer
                connection.settimeout(60)
                while close is False and (data := connection.recv(4096)):
                    said.append(data)

        threading.Thread(target=run, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/tail", said

    yield start
    for server in servers:
        server.close()


def test_messages_come_in_order_and_parts_are_put_together(serve):
    sent = frame(1, b"one") + frame(1, b"tw\xc3", False) + frame(9, b"alive?") + frame(0, b"\xb6") + frame(8, b"")
    url, said = serve(sent, close=False)
    with WebSocket(url, {"Authorization": "Bearer x"}, 60) as connection:
        assert connection.receive(60) == "one"
        assert connection.receive(60) == "tw\u00f6"
        with pytest.raises(EOFError):
            connection.receive(60)
    assert said == [] or said[0][0] == 0x80 | Opcode.PONG


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
    [("HTTP/1.1 404 Not Found\r\n\r\n", 404), ("HTTP/1.1 101 Yes\r\nSec-WebSocket-Accept: stale\r\n\r\n", 101), ("SSH-2.0\r\n\r\n", 0)],
)
def test_server_that_answers_something_else_is_refused(serve, answer, status):
    url, _ = serve(b"", answer)
    with pytest.raises(HandshakeRefused) as caught:
        WebSocket(url, {}, 60)
    assert caught.value.status == status
