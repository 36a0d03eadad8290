"""Clients that are slow or vanish: others are answered, handlers are cancelled, slots freed."""

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time

import psutil
import pytest
from starlette.responses import StreamingResponse

from syncline import serve
from syncline.serve.client import running_client
from syncline.serve.exceptions import RequestCancelledError
from tests.serve.faults.harness import (
    ANSWERED,
    SMALL,
    WAIT_S,
    check_all_slots_are_free,
    post,
    proxy_pid,
    wait_until,
)

pytestmark = pytest.mark.processes
SLOTS = 3
IDLE = 9_900
"""A little less than the limit, which leaves room for the others."""
CHUNK = b"x" * 100_000
RESET = struct.pack("ii", 1, 0)


@serve.deployment(ray_actor_options=SMALL, max_ongoing_requests=SLOTS)
class Site:
    def __init__(self, effects):
        self.effects = effects

    async def __call__(self, request):
        id = request.headers.get("x-request-id", "")
        self.effects.note("begin", id)
        try:
            if request.url.path == "/stream":
                return StreamingResponse(self.chunks(id))
            if request.url.path == "/wait":
                await asyncio.sleep(WAIT_S)
            size = 0
            async for piece in request.stream():
                size += len(piece)
            return size
        except BaseException as error:
            self.effects.note("cancelled", id)
            raise error

    async def chunks(self, id):
        try:
            while True:
                yield CHUNK
                await asyncio.sleep(0)
        finally:
            self.effects.note("cancelled", id)

    async def wait(self, id):
        self.effects.note("begin", id)
        try:
            await asyncio.sleep(WAIT_S)
        finally:
            self.effects.note("cancelled", id)

    async def numbers(self, id):
        try:
            number = 0
            while True:
                yield number
                number += 1
                await asyncio.sleep(0.001)
        finally:
            self.effects.note("cancelled", id)

    async def hold(self, id, gate):
        self.effects.note("hold", id)
        while not os.path.exists(gate):
            await asyncio.sleep(0.01)
        return id


@pytest.fixture
def handle(port, effects):
    return serve.run(Site.bind(effects))


def head(id, path="/", method="POST", length=0):
    lines = (f"{method} {path} HTTP/1.1", "Host: a", f"X-Request-ID: {id}")
    return "\r\n".join((*lines, f"Content-Length: {length}", "", "")).encode()


def connected(port):
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)


def status_of(client):
    return client.recv(65536).split(b" ", 2)[1].decode()


def queued():
    (deployment,) = running_client().details().deployments
    return deployment.queued


def cancelled(effects, *ids):
    wait_until(lambda: set(ids) <= set(effects.ids("cancelled")))


def test_clients_that_send_byte_by_byte_hold_no_slot(port, effects, handle):
    request = head("slow", length=20) + b"y" * 20
    clients = [connected(port) for _ in range(2 * SLOTS)]
    quick = []
    for index, byte in enumerate(request[:-1]):
        for client in clients:
            client.sendall(bytes([byte]))
        if index % 20 == 0:
            quick.append(post(port, f"quick{index}").outcome)
    assert quick == [ANSWERED] * len(quick)
    assert "slow" not in effects.ids("begin")
    for client in clients:
        client.sendall(request[-1:])
    for client in clients:
        assert status_of(client) == ANSWERED
        client.close()
    assert effects.ids("begin").count("slow") == len(clients)
    check_all_slots_are_free(handle, effects, SLOTS)


def test_slow_readers_stop_only_their_own_streams(port, effects, handle):
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(connected(port)) for _ in range(SLOTS - 1)]
        for number, reader in enumerate(readers):
            reader.sendall(head(f"reader{number}", "/stream"))
            assert status_of(reader) == ANSWERED
        time.sleep(0.3)  # the windows fill up
        assert [post(port, f"other{n}").outcome for n in range(20)] == [ANSWERED] * 20
        got = sum(len(readers[0].recv(65536)) for _ in range(200))  # it goes on when it reads
        assert got > 10 * len(CHUNK)
        assert effects.ids("cancelled") == []
    cancelled(effects, "reader0", "reader1")
    check_all_slots_are_free(handle, effects, SLOTS)


@pytest.mark.parametrize("by_reset", [False, True])
def test_clients_that_vanish_cancel_their_handlers(port, effects, handle, by_reset):
    def vanish(client):
        if by_reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.close()

    for number in range(2 * SLOTS):  # more often than there are slots
        stream, waiting, upload = (connected(port) for _ in range(3))
        stream.sendall(head(f"stream{number}", "/stream"))
        assert status_of(stream) == ANSWERED
        stream.recv(65536)
        waiting.sendall(head(f"wait{number}", "/wait"))
        # Long bodies are passed on before they are complete.
        upload.sendall(head(f"upload{number}", length=4_000_000) + b"y" * 2_000_000)
        ids = (f"stream{number}", f"wait{number}", f"upload{number}")
        wait_until(lambda ids=ids: set(ids) <= set(effects.ids("begin")))
        for client in (stream, waiting, upload):
            vanish(client)
        cancelled(effects, *ids)
    check_all_slots_are_free(handle, effects, SLOTS)


def test_clients_that_vanish_within_a_short_body_begin_nothing(port, effects, handle):
    for number in range(4 * SLOTS):
        request = head(f"part{number}", length=64) + b"y" * 64
        with connected(port) as client:
            client.sendall(request[: 10 * (number + 1)])
    assert post(port, "whole").outcome == ANSWERED
    check_all_slots_are_free(handle, effects, SLOTS)
    assert effects.ids("begin") == ["whole"]


def test_ten_thousand_idle_connections_cost_little_and_delay_nobody(port, effects, handle):
    process = psutil.Process(proxy_pid())
    assert post(port, "warm").outcome == ANSWERED
    files, memory = process.num_fds(), process.memory_full_info().uss
    clients = []
    try:
        for _ in range(IDLE):
            client = connected(port)
            client.sendall(head("idle", "/none"))  # afterwards, it is kept alive
            clients.append(client)
            assert status_of(client) == ANSWERED
        assert process.num_fds() > IDLE
        grown = (process.memory_full_info().uss - memory) / IDLE
        assert grown < 16_000, f"{grown:.0f} bytes per connection"
        quick = []
        for number in range(50):
            began = time.monotonic()
            quick.append(post(port, f"quick{number}").outcome)
            assert time.monotonic() - began < 2.0
        assert quick == [ANSWERED] * 50
        assert status_of_next(clients[0], "first") == status_of_next(clients[-1], "last") == "200"
    finally:
        for client in clients:
            client.close()
    wait_until(lambda: process.num_fds() <= files + 2)
    check_all_slots_are_free(handle, effects, SLOTS)


def status_of_next(client, id):
    client.sendall(head(id))
    return status_of(client)


def test_cancelled_handle_calls_free_their_slots(port, effects, handle):
    for number in range(2 * SLOTS):
        response = handle.wait.remote(f"call{number}")
        stream = handle.options(stream=True).numbers.remote(f"numbers{number}")
        assert [next(stream) for _ in range(3)] == [0, 1, 2]
        wait_until(lambda number=number: f"call{number}" in effects.ids("begin"))
        response.cancel()
        stream.cancel()
        with pytest.raises(RequestCancelledError):
            response.result(timeout_s=WAIT_S)
        cancelled(effects, f"call{number}", f"numbers{number}")
    check_all_slots_are_free(handle, effects, SLOTS)


def test_requests_that_wait_for_a_slot_are_dropped_when_their_clients_vanish(port, effects, handle):
    gate = f"{effects.path}.gate"
    holds = [handle.hold.remote(f"hold{n}", gate) for n in range(SLOTS)]
    wait_until(lambda: len(effects.ids("hold")) == SLOTS)
    clients = [connected(port) for _ in range(10)]
    for number, client in enumerate(clients):
        client.sendall(head(f"queued{number}"))
    wait_until(lambda: queued() == len(clients))
    for client in clients:
        client.close()
    wait_until(lambda: queued() == 0)
    last = []
    thread = threading.Thread(target=lambda: last.append(post(port, "last")))
    thread.start()
    wait_until(lambda: queued() == 1)
    open(gate, "w").close()
    thread.join(WAIT_S)
    assert [each.result(timeout_s=WAIT_S) for each in holds] == [f"hold{n}" for n in range(SLOTS)]
    assert [each.outcome for each in last] == [ANSWERED]
    assert effects.ids("begin") == ["last"]
    check_all_slots_are_free(handle, effects, SLOTS)
