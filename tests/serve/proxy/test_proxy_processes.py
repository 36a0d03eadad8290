"""The proxy between real clients and a FastAPI application in its own process."""

import asyncio
import hashlib
import http.client
import os
import signal
import socket
import threading
import time
from collections import Counter
from functools import partial

import httpx
import psutil
import pytest
from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import StreamingResponse
from websockets.sync.client import connect

import syncline
from syncline import serve
from syncline.testing.programs import free_port

pytestmark = pytest.mark.processes

WAIT_S = 30.0
app = FastAPI()


@serve.deployment(max_ongoing_requests=64, ray_actor_options={"num_cpus": 0.1})
@serve.ingress(app)
class Site:
    def __init__(self):
        self.events = []

    @app.get("/hello")
    async def hello(self):
        return "hello"

    @app.post("/digest")
    async def digest(self, request: Request):
        found = hashlib.sha256()
        async for piece in request.stream():
            found.update(piece)
        return found.hexdigest()

    @app.get("/numbers")
    async def numbers(self, count: int, size: int = 1, pause_s: float = 0.0):
        async def produce():
            for number in range(count):
                await asyncio.sleep(pause_s)
                yield bytes([number % 256]) * size

        return StreamingResponse(produce())

    @app.get("/sleep")
    async def sleep(self):
        try:
            await asyncio.sleep(WAIT_S)
        except asyncio.CancelledError:
            self.events.append("cancelled")
            raise

    @app.get("/events")
    async def read_events(self):
        return self.events

    @app.websocket("/reverse")
    async def reverse(self, websocket: WebSocket):
        await websocket.accept()
        while True:
            await websocket.send_text((await websocket.receive_text())[::-1])


@pytest.fixture(scope="module")
def port():
    port = free_port()
    syncline.init(num_cpus=2)
    serve.start(http_options={"port": port, "request_timeout_s": 20.0})
    serve.run(Site.bind())
    yield port
    serve.shutdown()
    syncline.shutdown()


def get(port: int, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", headers=headers, timeout=WAIT_S)


def until(condition) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_long_upload_is_streamed(port) -> None:
    body = os.urandom(7_000_000)
    response = httpx.post(f"http://127.0.0.1:{port}/digest", content=body, timeout=WAIT_S)
    assert response.json() == hashlib.sha256(body).hexdigest()


def test_chunked_upload_of_unknown_length(port) -> None:
    pieces = [os.urandom(100_000) for _ in range(40)]
    response = httpx.post(f"http://127.0.0.1:{port}/digest", content=iter(pieces), timeout=WAIT_S)
    assert response.json() == hashlib.sha256(b"".join(pieces)).hexdigest()


def test_pieces_arrive_as_they_are_produced(port) -> None:
    arrived = []
    url = f"http://127.0.0.1:{port}/numbers?count=5&pause_s=0.1"
    with httpx.stream("GET", url, timeout=WAIT_S) as response:
        for piece in response.iter_bytes():
            arrived.append((time.monotonic(), piece))
    assert b"".join(piece for _, piece in arrived) == bytes(range(5))
    assert arrived[-1][0] - arrived[0][0] > 0.2


def test_slow_reader_gets_everything_and_stops_nobody(port) -> None:
    url = f"http://127.0.0.1:{port}/numbers?count=300&size=100000"
    with httpx.stream("GET", url, timeout=WAIT_S) as response:
        time.sleep(0.5)  # the windows fill up
        assert all(get(port, "/hello").status_code == 200 for _ in range(20))
        assert sum(map(len, response.iter_bytes())) == 30_000_000


def test_client_that_leaves_cancels_the_handler(port) -> None:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /sleep HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(0.2)
    until(lambda: "cancelled" in get(port, "/events").json())


def test_timeout_of_the_client(port) -> None:
    response = get(port, "/sleep", **{"x-request-timeout-seconds": "0.2", "x-request-id": "me"})
    assert response.status_code == 408
    assert response.text == "Request me timed out after 0.2s."


def test_websocket(port) -> None:
    with connect(f"ws://127.0.0.1:{port}/reverse") as websocket:
        for text in ("hello", "x" * 200_000 + "y"):
            websocket.send(text)
            assert websocket.recv(timeout=WAIT_S) == text[::-1]


def test_killed_proxy_costs_only_the_requests_under_way(port) -> None:
    answers: Counter[object] = Counter()
    slowest = 0.0
    stop = threading.Event()

    def ask() -> None:
        nonlocal slowest
        client = None
        while not stop.is_set():
            began = time.monotonic()
            try:
                client = client or http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
                client.request("GET", "/hello")
                response = client.getresponse()
                response.read()
                answers[response.status] += 1
            except (OSError, http.client.HTTPException) as error:
                refused = isinstance(error, ConnectionRefusedError)
                answers["refused" if refused else "lost"] += 1
                client = None
            slowest = max(slowest, time.monotonic() - began)

    def at_least(count: int) -> bool:
        return answers[200] >= count

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    killed = set()
    for _ in range(2):
        until(lambda: proxies(port) - killed)
        (pid,) = proxies(port) - killed
        os.kill(pid, signal.SIGKILL)
        killed.add(pid)
        until(partial(at_least, answers[200] + 100))
    stop.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert answers.keys() <= {200, "lost"}
    assert answers["lost"] <= 2 * len(threads)
    assert slowest < 10.0


def proxies(port: int) -> set[int]:
    """The processes that have accepted connections on the port."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            connections = process.net_connections("tcp")
        except psutil.Error:
            continue
        if any(each.status == "ESTABLISHED" and each.laddr.port == port for each in connections):
            found.add(process.pid)
    return found
