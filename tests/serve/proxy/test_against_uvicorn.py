"""The same bytes to the proxy and to uvicorn: the same class of status.

Differences are allowed where the proxy is stricter on purpose (its refusals say why), or where
uvicorn drops the body of a request that wants another protocol.
"""

import asyncio
import random
from typing import Any

import pytest

from tests.serve.proxy.fakes import GET, Client, FakeTransport, post, read_responses
from tests.serve.proxy.test_bad_requests import CHUNKED, MALFORMED, SAMPLES, finish, mutations

uvicorn = pytest.importorskip("uvicorn")
httptools_impl = pytest.importorskip("uvicorn.protocols.http.httptools_impl")

STRICTER = (
    b"Host header",
    b"is not supported, only HTTP/1.1",
    b"longer than",
    b"more than 100 headers",
    b"larger than",
    b"too many digits",
    b"CONNECT",
    b"too small",
    b"target is not a path",
)
"""Texts of refusals that uvicorn does not have."""


async def application(scope: Any, receive: Any, send: Any) -> None:
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


class Uvicorn:
    """uvicorn's protocol on a fake transport."""

    def __init__(self) -> None:
        config = uvicorn.Config(application, ws="none", log_level="critical", access_log=False)
        config.load()
        self.loop = asyncio.new_event_loop()
        self.config = config

    def statuses(self, data: bytes) -> list[int]:
        return self.loop.run_until_complete(self._statuses(data))

    async def _statuses(self, data: bytes) -> list[int]:
        state = uvicorn.server.ServerState()
        protocol = httptools_impl.HttpToolsProtocol(self.config, state, {}, self.loop)
        transport = FakeTransport()
        protocol.connection_made(transport)
        protocol.data_received(data)
        for _ in range(20):
            await asyncio.sleep(0)
        protocol.connection_lost(None)
        for _ in range(5):
            await asyncio.sleep(0)
        return [each.status for each in read_responses(bytes(transport.written))]


@pytest.fixture(scope="module")
def oracle():
    server = Uvicorn()
    yield server
    server.loop.close()


def compare(oracle: Uvicorn, data: bytes) -> None:
    client = Client()
    client.send(data)
    ours, theirs = finish(client), oracle.statuses(data)
    if ours and theirs and theirs[0] == 400 and 400 in ours:
        return  # uvicorn refuses before it answers the requests that came before
    if ours and ours[-1] >= 400:
        text = client.responses()[-1].body
        if any(each in text for each in STRICTER):
            ours = ours[:-1]
            if ours:
                assert theirs[: len(ours)] == ours, data
            return
    if b"pgrade" in data:
        return  # uvicorn treats the body as another protocol
    if b"://" in data:
        return  # uvicorn refuses URLs without a path, which mean "/"
    assert [each // 100 for each in ours[:1]] == [each // 100 for each in theirs[:1]], data


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_requests(oracle, name) -> None:
    compare(oracle, MALFORMED[name][0])


@pytest.mark.parametrize("request_", SAMPLES)
def test_changed_bytes(oracle, request_) -> None:
    for changed in mutations(request_):
        compare(oracle, changed)


@pytest.mark.parametrize(
    "path",
    [
        b"/%",
        b"/%zz",
        b"/%ff%fe",
        b"/%00",
        b"//",
        b"//host/path",
        b"/a//b/../c",
        b"/?",
        b"/?a?b#c",
        b"/#fragment",
        b"/a#b?c",
        b"/\\",
        b"/{}|^`",
        b"/caf\xc3\xa9",
        b"/x?caf\xc3\xa9",
        b"http://host/path",
        b"http://host:99999/",
        b"http://[::1]/",
        b"*",
        b"?x",
        b"/" + b"%41" * 1000,
    ],
)
def test_paths(oracle, path) -> None:
    compare(oracle, b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path)


def test_random_changes(oracle) -> None:
    random_ = random.Random(3)
    samples = [*SAMPLES, *(data for data, _ in MALFORMED.values() if len(data) < 500), GET]
    samples += [post(b"x" * 20), CHUNKED + b"0\r\n\r\n"]
    for _ in range(3000):
        data = bytearray(random_.choice(samples))
        for _ in range(random_.randrange(1, 4)):
            position = random_.randrange(len(data))
            kind = random_.randrange(4)
            if kind == 0:
                data[position] = random_.randrange(256)
            elif kind == 1:
                data.insert(position, random_.choice(b"\r\n \t:,;0\0"))
            elif kind == 2 and len(data) > 2:
                del data[position]
            else:
                other = random_.choice(samples)
                data[position:position] = other[: random_.randrange(len(other))]
        compare(oracle, bytes(data))
