import asyncio
from typing import Any

import pytest
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.http11 import Response as Handshake
from websockets.protocol import State
from websockets.uri import parse_uri

from syncline.serve.controller.messages import Drain
from syncline.serve.ingress import ingress
from syncline.serve.wire.frames import Kind, decode_response, encode_window
from tests.serve.replica.harness import FINAL, PendingCall, TestCaller, run, staged

app = FastAPI()
events: list[Any] = []


@ingress(app)
class Chat:
    @app.websocket("/ws")
    async def talk(self, websocket: WebSocket):
        await websocket.accept()
        try:
            while True:
                message = await websocket.receive()
                if message["type"] == "websocket.disconnect":
                    raise WebSocketDisconnect(message["code"])
                if message.get("text") is not None:
                    await websocket.send_text(message["text"][::-1])
                else:
                    await websocket.send_bytes(message["bytes"][::-1])
        except WebSocketDisconnect as error:
            events.append(error.code)

    @app.websocket("/protocol")
    async def protocol(self, websocket: WebSocket, q: int = 0):
        events.append((websocket.scope["subprotocols"], websocket.scope["path"], q))
        await websocket.accept(subprotocol="b", headers=[(b"x-more", b"1")])
        await websocket.close(4001, "bye")

    @app.websocket("/refuse")
    async def refuse(self, websocket: WebSocket):
        await websocket.close()

    @app.websocket("/injects")
    async def injects(self, websocket: WebSocket):
        await websocket.accept(headers=[(b"x-more", b"1\r\nset-cookie: a")])

    @app.websocket("/fail")
    async def fail(self, websocket: WebSocket):
        await websocket.accept()
        raise RuntimeError("secret")

    @app.websocket("/flood")
    async def flood(self, websocket: WebSocket):
        await websocket.accept()
        for i in range(100):
            events.append(i)
            await websocket.send_bytes(bytes(range(256)) * 256)


class Client:
    """A WebSocket client behind a caller of the replica."""

    def __init__(self, caller: TestCaller, path: str, **options: Any) -> None:
        self.protocol = ClientProtocol(parse_uri(f"ws://test{path}"), **options)
        request = self.protocol.connect()
        headers = [(k.lower().encode(), v.encode()) for k, v in request.headers.raw_items()]
        self.call: PendingCall = caller.http(path.encode(), headers=headers, scheme="ws")
        self.protocol.send_request(request)
        self.protocol.data_to_send()
        self.grants = True
        self.received: list[Any] = []

    async def open(self) -> Handshake:
        kind, payload = await self.call.next()
        assert kind in (Kind.START, Kind.RESPONSE)
        self.protocol.receive_data(decode_response(payload)[1])
        events = self.protocol.events_received()
        assert isinstance(events[0], Handshake)
        if self.protocol.handshake_exc is not None:
            raise self.protocol.handshake_exc
        return events[0]

    def send(self) -> None:
        for data in self.protocol.data_to_send():
            if data:
                self.call.send(Kind.BODY, data)

    async def next(self) -> Frame:
        """Return the next frame of the server."""
        while not self.received:
            kind, payload = await self.call.next()
            assert kind == Kind.CHUNK, kind
            if self.grants:
                self.call.send(Kind.WINDOW, encode_window(len(payload)))
            self.protocol.receive_data(payload)
            self.received += self.protocol.events_received()
            self.send()
        frame = self.received.pop(0)
        assert isinstance(frame, Frame)
        return frame


@pytest.fixture(autouse=True)
def no_events() -> None:
    events.clear()


def test_messages_go_both_ways_and_the_client_closes(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Chat) as stage:
            deflate = ClientPerMessageDeflateFactory()
            client = Client(await stage.connect(), "/ws", extensions=[deflate])
            response = await client.open()
            assert response.headers["x-request-id"] == "id-1"
            assert "permessage-deflate" in response.headers["sec-websocket-extensions"]
            client.protocol.send_text(b"hello")
            client.protocol.send_binary(b"\x00\x01")
            client.send()
            assert (await client.next()).data == b"olleh"
            frame = await client.next()
            assert (frame.opcode, frame.data) == (Opcode.BINARY, b"\x01\x00")
            client.protocol.send_close(1000)
            client.send()
            assert (await client.next()).opcode is Opcode.CLOSE
            assert (await client.call.next())[0] == Kind.END
            assert client.protocol.state is not State.OPEN

    run(scenario)


def test_fragments_pings_and_single_bytes(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Chat) as stage:
            client = Client(await stage.connect(), "/ws")
            await client.open()
            client.protocol.send_text(b"ab", fin=False)
            client.protocol.send_ping(b"p")
            client.protocol.send_continuation(b"cd", fin=True)
            for byte in b"".join(client.protocol.data_to_send()):
                client.call.send(Kind.BODY, bytes([byte]))
            assert (await client.next()).opcode is Opcode.PONG
            assert (await client.next()).data == b"dcba"

    run(scenario)


def test_subprotocol_headers_and_close_code_of_user_code(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Chat) as stage:
            client = Client(await stage.connect(), "/protocol?q=4", subprotocols=["a", "b"])
            response = await client.open()
            assert (client.protocol.subprotocol, response.headers["x-more"]) == ("b", "1")
            frame = await client.next()
            assert (frame.opcode, frame.data) == (Opcode.CLOSE, b"\x0f\xa1bye")
            assert (await client.call.next())[0] == Kind.END

    run(scenario)
    assert events == [(["a", "b"], "/protocol", 4)]


def test_refused_handshake_is_403(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Chat) as stage:
            for path, status in (("/refuse", 403), ("/none", 403), ("/injects", 500)):
                client = Client(await stage.connect(), path)
                with pytest.raises(InvalidStatus) as caught:
                    await client.open()
                assert caught.value.response.status_code == status, path

    run(scenario)


def test_invalid_handshake_is_refused(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Chat) as stage:
            headers = [(b"upgrade", b"websocket"), (b"connection", b"upgrade")]
            call = (await stage.connect()).http(b"/ws", headers=headers, scheme="ws")
            assert (await call.response()).status == 400

    run(scenario)


def test_exception_closes_with_1011(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Chat) as stage:
            client = Client(await stage.connect(), "/fail")
            await client.open()
            frame = await client.next()
            assert (frame.opcode, frame.data) == (Opcode.CLOSE, b"\x03\xf3")
            assert (await client.call.next())[0] == Kind.END

    run(scenario)


def test_vanished_client_is_a_disconnect_event(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Chat) as stage:
            client = Client(await stage.connect(), "/ws")
            await client.open()
            client.call.send(Kind.CANCEL)
            while (await client.call.next())[0] not in FINAL:
                pass

    run(scenario)
    assert events == [1006]


def test_draining_replica_closes_with_1012(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Chat) as stage:
            client = Client(await stage.connect(), "/ws")
            await client.open()
            stage.controller.notify(Drain(timeout_s=10))
            assert (await client.next()).data == b"\x03\xf4"
            await asyncio.wait_for(stage.task, 60)

    run(scenario)
    assert events == [1012]


def test_slow_client_stops_user_code(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Chat) as stage:
            client = Client(await stage.connect(), "/flood")
            await client.open()
            client.grants = False
            for _ in range(4):
                await client.next()
            await asyncio.sleep(0.05)
            assert 4 <= len(events) < 10
            client.call.send(Kind.WINDOW, encode_window(10_000_000))
            for _ in range(96):
                await client.next()

    run(scenario)
    assert len(events) == 100


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x85abcde", 1002),  # the mask is incomplete, and then the connection ends
        (b"\x81\x01a", 1002),  # unmasked
        (b"\x81\x82\x00\x00\x00\x00\xff\xfe", 1007),  # invalid UTF-8
        (b"\x83\x80\x00\x00\x00\x00", 1002),  # unknown opcode
        (b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", 1009),  # too large
    ],
)
def test_invalid_frames_close_the_websocket(tmp_path, frame, code):
    async def scenario() -> None:
        async with staged(tmp_path, Chat) as stage:
            client = Client(await stage.connect(), "/ws")
            await client.open()
            client.call.send(Kind.BODY, frame)
            if frame.endswith(b"abcde"):
                client.call.send(Kind.CANCEL)
            else:
                closing = await client.next()
                assert int.from_bytes(closing.data[:2], "big") == code
            while (await client.call.next())[0] not in FINAL:
                pass

    run(scenario)
    assert len(events) == 1
