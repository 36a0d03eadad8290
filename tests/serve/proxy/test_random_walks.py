"""Random orders of what clients, replicas and clocks do; invariants hold in all of them."""

import random

import pytest

from syncline.serve.exceptions import BackPressureError, ReplicaUnavailableError
from syncline.serve.proxy.limits import HttpLimits
from syncline.serve.proxy.requests import HttpCall
from syncline.serve.wire.frames import Kind
from tests.serve.proxy.fakes import (
    Client,
    chunk,
    grant,
    make_table,
    read_responses,
    request_of,
    respond,
    start_stream,
)

LIMITS = HttpLimits(whole_body_bytes=1000, pipelined=3, body_s=1e6, head_s=1e6, keep_alive_s=1e6)
REQUESTS = 12


class Walk:
    """One connection with a script of pipelined requests, and a replica with moods."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.client = Client(LIMITS, table=make_table("/app"))
        self.bodies = [self._body() for _ in range(REQUESTS)]
        self.kinds = [self.random.choice(("app", "app", "app", "missing")) for _ in self.bodies]
        self.unsent = b"".join(self._request(number) for number in range(REQUESTS))
        self.answered: set[int] = set()
        self.granted: set[int] = set()
        self.is_broken = False

    def _body(self) -> bytes:
        size = self.random.choice((0, 0, 0, 10, 900, 5000, 400_000))
        return self.random.randbytes(size)

    def _request(self, number: int) -> bytes:
        body = self.bodies[number]
        head = f"/{self.kinds[number]} HTTP/1.1\r\nHost: a\r\nX-Request-ID: {number}\r\n"
        if not body:
            return f"GET {head}\r\n".encode()
        if self.random.random() < 0.5:
            return f"POST {head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        half = len(body) // 2
        pieces = b"".join(
            b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:half], body[half:]) if piece
        )
        return f"POST {head}Transfer-Encoding: chunked\r\n\r\n".encode() + pieces + b"0\r\n\r\n"

    # -- moves

    def send(self) -> None:
        if self.client.transport.reads and self.unsent and not self.client.is_closed:
            size = self.random.choice((1, 30, 500, 5000, 100_000, 300_000))
            data, self.unsent = self.unsent[:size], self.unsent[size:]
            self.client.send(data)

    def live(self) -> HttpCall | None:
        calls = self.client.link.calls
        return calls[-1] if calls and not calls[-1].is_done else None

    def has_whole_body(self, call: HttpCall) -> bool:
        if not request_of(call)[0].more_body:
            return True
        frames = [each for each in self.client.link.frames if each.call is call]
        return any(each.kind == Kind.BODY and not each.payload for each in frames)

    def answer(self) -> None:
        call = self.live()
        if call is None or not self.has_whole_body(call):
            return
        head, body = request_of(call)
        number = int(head.request_id)
        assert body + self.client.link.body(call) == self.bodies[number]
        self.answered.add(number)
        if call.status or self.random.random() < 0.4:
            if not call.status:
                start_stream(call)
            chunk(call, head.request_id.encode())
            call.on_frame(Kind.CHUNK, b"0\r\n\r\n")
            call.on_frame(Kind.END, b"")
        else:
            respond(call, head.request_id.encode())

    def begin_stream(self) -> None:
        call = self.live()
        if call is not None and not call.status and not call.stream:
            start_stream(call)

    def fail(self) -> None:
        call = self.live()
        if call is None or self.random.random() < 0.8:
            return
        number = int(call.request_id)
        self.answered.add(number)
        self.is_broken = self.is_broken or bool(call.status)
        call.on_failed(
            self.random.choice((BackPressureError(1, 1), ReplicaUnavailableError("died")))
        )

    def grant(self) -> None:
        call = self.live()
        if call is not None and call.stream is not None and call.replica_id:
            self.granted.add(call.call_id)
            grant(call, self.random.choice((1, 1000, 300_000)))

    def busy(self) -> None:
        """The replica is busy before it has read anything."""
        call = self.live()
        if call is None or call.call_id in self.granted:
            return
        if call.can_resend and not call.status:
            link = self.client.link
            link.frames = [each for each in link.frames if each.call is not call]
            call.replica_id = ""
            self.send()
            link.start(call, "another")

    def pause(self) -> None:
        if not self.client.is_closed:
            self.client.connection.pause_writing()
            self.send()
            self.client.connection.resume_writing()

    def pass_time(self) -> None:
        self.client.pass_time(self.random.choice((0.5, 20)))

    def step(self) -> None:
        move = self.random.choice(
            (
                *(self.send,) * 5,
                *(self.answer,) * 3,
                self.begin_stream,
                self.fail,
                self.grant,
                self.grant,
                self.busy,
                self.pause,
                self.pass_time,
            )
        )
        move()

    def finish(self) -> None:
        """Let everything end well from here."""
        for _ in range(10_000):
            if self.client.is_closed:
                return
            waiting = self.live()
            if not self.unsent and waiting is None:
                return
            self.send()
            if waiting is not None and waiting.stream is not None:
                grant(waiting, 300_000)
            self.answer()
        raise AssertionError("the connection hangs")

    def check(self) -> None:
        if self.is_broken:
            assert self.client.is_closed
            return
        found = read_responses(bytes(self.client.transport.written))
        for number, response in enumerate(found):
            assert response.headers.get("x-request-id", str(number)) == str(number)
            if self.kinds[number] == "missing":
                assert response.status == 404
            elif response.status == 200:
                assert response.body == str(number).encode()
            else:
                assert response.status in (502, 503)
                assert number in self.answered
        if not self.client.is_closed:
            assert len(found) == REQUESTS
        else:
            assert found[-1].headers["connection"] == "close"


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_every_request_is_answered_once_and_in_order(start) -> None:
    for seed in range(start, start + 100):
        walk = Walk(seed)
        for _ in range(walk.random.randrange(300)):
            walk.step()
        walk.finish()
        walk.check()


@pytest.mark.parametrize("start", range(0, 200, 100))
def test_no_request_survives_its_client(start) -> None:
    for seed in range(start, start + 100):
        walk = Walk(seed)
        for _ in range(walk.random.randrange(200)):
            walk.step()
        waiting = walk.live()
        walk.client.leave()
        link = walk.client.link
        assert all(call.is_done for call in link.calls)
        assert link.cancelled[-1:] == ([] if waiting is None else [waiting])
        assert walk.client.server.statistics().ongoing_requests == 0
