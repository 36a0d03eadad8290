"""A proxy with real sockets, between a fake controller and a fake replica in the same process."""

import asyncio
import contextlib
import http.client
import os
import pickle
import resource
import shutil
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

import pytest

from syncline.core import serialization
from syncline.serve.controller.messages import (
    Acknowledge,
    DrainProxy,
    LoadReport,
    ProxyFailed,
    ProxyReady,
    Subscribe,
)
from syncline.serve.event_loop import new_event_loop
from syncline.serve.proxy.limits import HttpLimits
from syncline.serve.proxy.listening import (
    REQUEST,
    fd_path,
    open_listening_socket,
    receive_listening_socket,
    send_listening_socket,
    tls_context,
)
from syncline.serve.proxy.process import SPARE_FILES, Proxy, fit_to_open_files
from syncline.serve.proxy.proxy_config import ProxyConfig
from syncline.serve.proxy_options import HTTPOptions
from syncline.serve.replica.ledger import Ledger
from syncline.serve.wire.connection import Hello, Listener, LoopConnection
from syncline.serve.wire.frames import Kind, decode_request, encode_status
from syncline.serve.wire.routes import (
    Address,
    ApplicationRoute,
    DeploymentId,
    DeploymentRoute,
    ReplicaRoute,
    TableUpdate,
)

KEY = b"k" * 32
NODE = "node"
ID = DeploymentId("app", "Echo")
WAIT_S = 60.0


class Replica:
    """Answers each request with its body, or its target; `/slow` waits for `release`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[LoopConnection, int]] = []

    def on_ready(self, connection: LoopConnection) -> "Replica":
        self.connection = connection
        return self

    def on_frame(self, kind: int, call_id: int, payload: bytes) -> None:
        if kind != Kind.HTTP:
            return
        head, body = decode_request(payload)
        if head.target == b"/slow":
            self.waiting.append((self.connection, call_id))
        else:
            self.answer(self.connection, call_id, body or head.target)

    def on_closed(self) -> None:
        pass

    def answer(self, connection: LoopConnection, call_id: int, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
        connection.send(Kind.RESPONSE, call_id, encode_status(200), head, body)

    def release(self) -> None:
        for connection, call_id in self.waiting:
            self.answer(connection, call_id, b"late")
        self.waiting.clear()


class Controller:
    """Publishes one table and keeps the messages that it gets."""

    def __init__(self, update: TableUpdate) -> None:
        self.update = update
        self.messages: list[object] = []
        self.connections: list[LoopConnection] = []

    def on_ready(self, connection: LoopConnection) -> "Controller":
        self.connections.append(connection)
        return self

    def on_frame(self, kind: int, call_id: int, payload: bytes) -> None:
        message = pickle.loads(payload)
        self.messages.append(message)
        if isinstance(message, Subscribe):
            self.send(self.update)

    def on_closed(self) -> None:
        pass

    def send(self, message: object) -> None:
        self.connections[-1].send(Kind.NOTICE, 0, pickle.dumps(message))

    def of(self, kind: type) -> list:
        return [each for each in self.messages if isinstance(each, kind)]


class Site:
    """Controller, replica and proxy on one event loop, which runs in a thread."""

    def __init__(self, directory: Path, loop: asyncio.AbstractEventLoop, **options) -> None:
        self.directory = directory
        self.loop = loop
        self.listening = open_listening_socket("127.0.0.1", 0)
        self.port = self.listening.getsockname()[1]
        self.http = HTTPOptions(port=self.port, **options)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.replica = Replica()

    def __enter__(self) -> "Site":
        self.thread.start()
        self.call(self._start())
        return self

    def __exit__(self, *_) -> None:
        self.call(self._stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WAIT_S)
        self.loop.close()
        self.listening.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S)

    async def _start(self) -> None:
        path = str(self.directory / "replica.sock")
        hello = Hello(role="replica", id="app#Echo#1", pid=os.getpid())
        self.replica_listener = Listener(hello, KEY, self.replica.on_ready)
        address = await self.replica_listener.start(path, node_id=NODE, host=None)
        ledger = str(self.directory / "ledger")
        self.ledger = Ledger(ledger, 8)
        replica = ReplicaRoute(replica_id="app#Echo#1", address=address, ledger_path=ledger)
        self.update = TableUpdate(
            version=7,
            is_complete=True,
            deployments=(DeploymentRoute(id=ID, replicas=(replica,), max_ongoing_requests=100),),
            applications=(
                ApplicationRoute(name="app", route_prefix="/", ingress=ID, is_asgi=False),
            ),
        )
        await self.start_controller()
        self.passing = self.loop.create_task(self._pass_socket())
        self.start_proxy()
        await self.until(lambda: self.controller.of(ProxyReady) or self.controller.of(ProxyFailed))

    async def start_controller(self) -> None:
        self.controller = Controller(self.update)
        hello = Hello(role="controller", id="controller", pid=os.getpid())
        self.controller_listener = Listener(hello, KEY, self.controller.on_ready)
        self.address = await self.controller_listener.start(
            str(self.directory / "controller.sock"), node_id=NODE, host=None
        )

    def start_proxy(self) -> None:
        config = ProxyConfig(
            proxy_id="proxy-1",
            http=self.http,
            key=KEY,
            controller=Address(node_id=NODE, unix_path=self.address.unix_path),
            fd_path=fd_path(self.address.unix_path),
        )
        self.proxy = Proxy(config, self.loop, node_id=NODE)
        self.running = self.loop.create_task(self.proxy.run())

    async def _pass_socket(self) -> None:
        path = fd_path(self.address.unix_path)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            server.setblocking(False)
            while True:
                connection, _ = await self.loop.sock_accept(server)
                with connection:
                    await self.loop.sock_recv(connection, len(REQUEST))
                    send_listening_socket(connection, self.listening)

    async def _stop(self) -> None:
        if not self.running.done():
            self.controller.send(DrainProxy(timeout_s=0.1))
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.running, WAIT_S)
        self.passing.cancel()
        self.controller_listener.close()
        self.replica_listener.close()
        self.ledger.close()

    async def until(self, condition) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end, "it did not happen"
            await asyncio.sleep(0.005)

    # -- clients

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)

    def get(self, path: str, connection: http.client.HTTPConnection | None = None) -> bytes:
        connection = connection or self.connection()
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200, response.status
        return response.read()


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request) -> asyncio.AbstractEventLoop:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
        return new_event_loop()
    return asyncio.new_event_loop()


@pytest.fixture
def site(tmp_path, loop):
    with Site(tmp_path, loop) as started:
        yield started


def test_requests_reach_the_replica(site) -> None:
    (ready,) = site.controller.of(ProxyReady)
    assert ready.http_address == ("127.0.0.1", site.port)
    assert [each.version for each in site.controller.of(Acknowledge)] == [7]
    connection = site.connection()
    assert site.get("/hello", connection) == b"/hello"
    assert site.get("/-/healthz", connection) == b"success"
    connection.request("POST", "/", body=b"x" * 900_000)
    assert connection.getresponse().read() == b"x" * 900_000
    site.call(site.until(lambda: site.proxy.statistics().routes[1].requests == 2))


def test_load_is_reported(site) -> None:
    connection = site.connection()
    connection.request("GET", "/slow")
    site.call(site.until(lambda: site.replica.waiting))
    busy = {ID: (0, {"app#Echo#1": 1})}
    site.call(
        site.until(lambda: any(each.loads == busy for each in site.controller.of(LoadReport)))
    )
    site.loop.call_soon_threadsafe(site.replica.release)
    assert connection.getresponse().read() == b"late"
    idle = {ID: (0, {})}
    site.call(site.until(lambda: site.controller.of(LoadReport)[-1].loads == idle))


def test_requests_go_on_without_a_controller_and_a_new_one_is_told(site) -> None:
    async def kill() -> None:
        site.controller_listener.close()
        for connection in site.controller.connections:
            connection.close()

    async def restart() -> None:
        await site.start_controller()
        await site.until(lambda: site.controller.of(Acknowledge))

    connection = site.connection()
    assert site.get("/1", connection) == b"/1"
    site.call(kill())
    for number in range(20):
        assert site.get(f"/{number}", connection) == b"/%d" % number
    site.call(restart())
    assert site.controller.of(ProxyReady)
    assert site.get("/2", connection) == b"/2"


def test_drain_finishes_requests_and_closes_idle_connections(site) -> None:
    idle, busy = site.connection(), site.connection()
    assert site.get("/x", idle) == b"/x"
    busy.request("GET", "/slow")
    site.call(site.until(lambda: site.replica.waiting))

    async def drain() -> None:
        site.controller.send(DrainProxy(timeout_s=WAIT_S))
        await site.until(lambda: site.proxy.server.is_draining)

    site.call(drain())
    assert idle.sock.recv(10) == b""
    assert not site.running.done()
    site.loop.call_soon_threadsafe(site.replica.release)
    assert busy.getresponse().read() == b"late"
    site.call(asyncio.wait_for(site.running, WAIT_S))


def test_connections_wait_while_no_proxy_accepts(site) -> None:
    site.controller.messages.clear()

    async def stop() -> None:
        site.controller.send(DrainProxy(timeout_s=1.0))
        await asyncio.wait_for(site.running, WAIT_S)

    site.call(stop())
    waiting = site.connection()
    waiting.request("GET", "/waited")  # accepted by the system, not by a proxy
    site.loop.call_soon_threadsafe(site.start_proxy)
    assert waiting.getresponse().read() == b"/waited"


def test_connections_beyond_the_limit_wait(tmp_path, loop) -> None:
    with Site(tmp_path, loop, max_connections=2) as site:
        first, second, third = (site.connection() for _ in range(3))
        assert site.get("/1", first) == b"/1"
        assert site.get("/2", second) == b"/2"
        third.request("GET", "/3")
        assert site.proxy.server.connection_count == 2
        assert site.get("/1", first) == b"/1"
        first.close()
        assert third.getresponse().read() == b"/3"


def test_slow_head_is_refused(tmp_path, loop) -> None:
    with (
        Site(tmp_path, loop, header_timeout_s=0.2) as site,
        socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S) as client,
    ):
        client.sendall(b"GET / HT")
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_slow_reader_does_not_stop_others(site) -> None:
    body = b"x" * 8_000_000

    async def stream() -> None:
        connection, call_id = site.replica.waiting.pop()
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
        connection.send(Kind.RESPONSE, call_id, encode_status(200), head, body)

    slow, quick = site.connection(), site.connection()
    slow.request("GET", "/slow")
    site.call(site.until(lambda: site.replica.waiting))
    site.call(stream())
    for number in range(50):
        assert site.get(f"/{number}", quick) == b"/%d" % number
    assert slow.getresponse().read() == body


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_tls(tmp_path, loop) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    arguments = [*command.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(arguments, check=True, capture_output=True, timeout=60)
    with Site(tmp_path, loop, ssl_keyfile=str(key), ssl_certfile=str(certificate)) as site:
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(
            "127.0.0.1", site.port, timeout=WAIT_S, context=context
        )
        assert site.get("/secret", connection) == b"/secret"
        assert site.get("/again", connection) == b"/again"
        connection.request("POST", "/", body=b"x" * 900_000)
        assert connection.getresponse().read() == b"x" * 900_000


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_an_encrypted_key_needs_its_password(tmp_path) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    command = "openssl req -x509 -newkey rsa:2048 -passout pass:secret -subj /CN=localhost"
    arguments = [*command.split(), "-keyout", key, "-out", certificate]
    subprocess.run(arguments, check=True, capture_output=True, timeout=60)
    files = {"ssl_keyfile": key, "ssl_certfile": certificate}
    assert tls_context(HTTPOptions(**files, ssl_keyfile_password="secret")) is not None
    with pytest.raises(ValueError, match="an encrypted key needs `ssl_keyfile_password`"):
        tls_context(HTTPOptions(**files))


def test_missing_files_of_tls_are_named(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = HTTPOptions(ssl_keyfile="key.pem", ssl_certfile="cert.pem")
    with pytest.raises(ValueError, match=rf"Missing: 'cert.pem', 'key.pem' .*{tmp_path.name}"):
        tls_context(options)


def test_proxy_that_cannot_start_tells_the_controller(tmp_path, loop) -> None:
    missing = str(tmp_path / "missing.pem")
    with Site(tmp_path, loop, ssl_keyfile=missing, ssl_certfile=missing) as site:
        (failed,) = site.controller.of(ProxyFailed)
        error = serialization.unpack_error(failed.error)
        assert isinstance(error, ValueError)
        assert "missing.pem" in str(error)
        site.call(asyncio.wait_for(site.running, WAIT_S))


def test_port_in_use_is_an_error_with_advice() -> None:
    message = "cannot listen on 127.0.0.1:.*'port': 0"
    with open_listening_socket("127.0.0.1", 0) as taken, pytest.raises(OSError, match=message):
        open_listening_socket("127.0.0.1", taken.getsockname()[1])


def test_controller_without_a_socket_is_an_error(tmp_path) -> None:
    path = str(tmp_path / "fds")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def refuse() -> None:
            connection, _ = server.accept()
            connection.recv(64)
            connection.sendall(b"no HTTP")
            connection.close()

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(OSError, match="no HTTP"):
            receive_listening_socket(path)
        thread.join()


def test_connections_are_limited_by_the_open_files_of_the_process(monkeypatch, caplog) -> None:
    changed = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: changed.append(limits))
    assert fit_to_open_files(HttpLimits(connections=500)).connections == 500
    assert fit_to_open_files(HttpLimits(connections=3000)).connections == 3000
    assert not caplog.records
    assert fit_to_open_files(HttpLimits(connections=10_000)).connections == 4096 - SPARE_FILES
    assert changed == [(3000 + SPARE_FILES, 4096), (4096, 4096)]
    assert "ulimit" in caplog.text
