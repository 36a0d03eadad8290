"""A replica in the test's process, on one event loop with a fake controller and callers."""

import asyncio
import itertools
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from syncline.core import serialization
from syncline.core.event_loops import cancel_all
from syncline.serve import context
from syncline.serve.controller.messages import Drain, Drained, ReplicaFailed, ReplicaReady
from syncline.serve.event_loop import new_event_loop
from syncline.serve.replica import process
from syncline.serve.replica.process import Replica
from syncline.serve.replica.replica_config import ReplicaConfig
from syncline.serve.wire.connection import Hello, Listener, LoopConnection, connect
from syncline.serve.wire.frames import (
    Kind,
    RequestHead,
    decode_response,
    encode_request,
    encode_window,
)
from syncline.serve.wire.routes import Address, DeploymentId
from syncline.serve.wire.values import CallMeta, pack_call, unpack_failure, unpack_value

KEY = b"k" * 32
_definitions: list[Any] = []
FINAL = {Kind.RESPONSE, Kind.END, Kind.VALUE, Kind.ERROR, Kind.ABORT, Kind.BUSY}
WAIT_S = 60.0


def request_head(target: bytes = b"/", **fields: Any) -> RequestHead:
    head: dict[str, Any] = {
        "method": "GET",
        "target": target,
        "headers": [(b"host", b"test")],
        "http_version": "1.1",
        "scheme": "http",
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 8000),
        "root_path": "",
        "request_id": "id-1",
        "timeout_s": None,
        "keep_alive": True,
        "more_body": False,
        "multiplexed_model_id": "",
        "route": "/",
        **fields,
    }
    return RequestHead(**head)


@dataclass
class Response:
    """A response as its client would see it."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_complete: bool
    """False if the replica broke it off."""
    raw: bytes
    kinds: list[int]
    pieces: list[bytes] = field(default_factory=list)


class PendingCall:
    """A call of a test and the frames of its answer."""

    def __init__(self, caller: "TestCaller", call_id: int) -> None:
        self.caller = caller
        self.call_id = call_id
        self.frames: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self.seen: list[tuple[int, bytes]] = []

    async def next(self) -> tuple[int, bytes]:
        frame = await asyncio.wait_for(self.frames.get(), WAIT_S)
        self.seen.append(frame)
        return frame

    async def end(self, *, grant: bool = True) -> list[tuple[int, bytes]]:
        """Return all frames up to the last one."""
        while not self.seen or self.seen[-1][0] not in FINAL:
            kind, payload = await self.next()
            if grant and kind == Kind.CHUNK:
                self.send(Kind.WINDOW, encode_window(len(payload)))
        return self.seen

    def send(self, kind: int, *parts: bytes) -> None:
        self.caller.connection.send(kind, self.call_id, *parts)

    async def value(self) -> Any:
        """Return the result of a handle call, or raise its error."""
        kind, payload = (await self.end())[-1]
        if kind == Kind.ERROR:
            raise unpack_failure(payload)
        assert kind == Kind.VALUE, kind
        return unpack_value(payload)

    async def items(self) -> list[Any]:
        """Return the items of a stream, or raise its error."""
        frames = await self.end()
        if frames[-1][0] == Kind.ERROR:
            raise unpack_failure(frames[-1][1])
        assert frames[-1][0] == Kind.END
        return [unpack_value(payload) for kind, payload in frames if kind == Kind.CHUNK]

    async def response(self) -> Response:
        return parse(await self.end())


def parse(frames: list[tuple[int, bytes]]) -> Response:
    """Return the response of an HTTP request's frames."""
    raw = b"".join(
        decode_response(payload)[1] if kind in (Kind.RESPONSE, Kind.START) else payload
        for kind, payload in frames
    )
    assert frames[0][0] in (Kind.RESPONSE, Kind.START), frames
    status = decode_response(frames[0][1])[0]
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    assert lines[0].startswith(f"HTTP/1.1 {status}"), lines
    headers = dict(line.split(": ", 1) for line in lines[1:])
    assert len(headers) == len(lines) - 1 or "set-cookie" in headers, lines
    pieces = [payload for kind, payload in frames if kind == Kind.CHUNK]
    is_complete = frames[-1][0] in (Kind.RESPONSE, Kind.END)
    if headers.get("transfer-encoding") == "chunked" and is_complete:
        body = unchunk(body)
    return Response(status, headers, body, is_complete, raw, [kind for kind, _ in frames], pieces)


def unchunk(data: bytes) -> bytes:
    body = []
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        assert data[length : length + 2] == b"\r\n"
        if not length:
            assert data == b"\r\n"
            return b"".join(body)
        body.append(data[:length])
        data = data[length + 2 :]


class TestCaller:
    """A connection to the replica."""

    __test__ = False
    _ids = itertools.count(1 << 40)

    def __init__(self) -> None:
        self.connection: LoopConnection
        self.calls: dict[int, PendingCall] = {}
        self.freed = asyncio.Event()
        self.is_closed = asyncio.Event()

    def on_frame(self, kind: int, call_id: int, payload: bytes) -> None:
        if kind == Kind.FREE:
            self.freed.set()
        else:
            self.calls[call_id].frames.put_nowait((kind, payload))

    def on_closed(self) -> None:
        self.is_closed.set()

    def http(self, target: bytes = b"/", body: bytes = b"", **head: Any) -> PendingCall:
        return self._send(Kind.HTTP, *encode_request(request_head(target, **head), body))

    def call(self, method: str = "__call__", *args: Any, **kwargs: Any) -> PendingCall:
        return self.call_with({}, method, *args, **kwargs)

    def stream(self, method: str, *args: Any, **kwargs: Any) -> PendingCall:
        return self.call_with({"stream": True}, method, *args, **kwargs)

    def call_with(self, meta: dict[str, Any], method: str, *args: Any, **kwargs: Any):
        fields: dict[str, Any] = {
            "method": method,
            "request_id": "id-1",
            "timeout_s": None,
            "multiplexed_model_id": "",
            "session_id": "",
            "stream": False,
            "app": "app",
            "route": "",
            **meta,
        }
        return self._send(Kind.CALL, *pack_call(CallMeta(**fields), args, kwargs))

    def _send(self, kind: int, *parts: Any) -> PendingCall:
        call_id = next(self._ids)
        call = self.calls[call_id] = PendingCall(self, call_id)
        self.connection.send(kind, call_id, *parts)
        return call


class FakeController:
    """Receives the notices of the replica."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Any] = asyncio.Queue()
        self.connections: list[LoopConnection] = []

    def on_ready(self, connection: LoopConnection) -> "FakeController":
        self.connections.append(connection)
        return self

    def on_frame(self, kind: int, call_id: int, payload: bytes) -> None:
        assert kind == Kind.NOTICE
        self.messages.put_nowait(pickle.loads(payload))

    def on_closed(self) -> None:
        pass

    def notify(self, message: object) -> None:
        self.connections[-1].send(Kind.NOTICE, 0, pickle.dumps(message))

    async def next(self) -> Any:
        return await asyncio.wait_for(self.messages.get(), WAIT_S)


class _Reference:
    """Stands for a definition of this process, so that closures of tests see their replica."""

    def __init__(self, definition: Any) -> None:
        _definitions.append(definition)
        self.index = len(_definitions) - 1

    def __reduce__(self) -> tuple[Any, ...]:
        return definition_at, (self.index,)


def definition_at(index: int) -> Any:
    return _definitions[index]


class Stage:
    """A started replica."""

    def __init__(self, directory: Path, controller: FakeController, config: ReplicaConfig) -> None:
        self.directory = directory
        self.controller = controller
        self.config = config
        self.replica: Replica
        self.ready: ReplicaReady | ReplicaFailed
        self.task: asyncio.Task[None]
        self.address = Address(node_id="node", unix_path=config.socket_path)

    async def connect(self) -> TestCaller:
        """Return a new caller."""
        caller = TestCaller()

        def on_ready(connection: LoopConnection) -> TestCaller:
            caller.connection = connection
            return caller

        await connect(
            self.address,
            node_id="node",
            hello=Hello(role="caller", id="c", pid=1),
            key=KEY,
            on_ready=on_ready,
        )
        return caller

    async def drain(self, timeout_s: float = 10.0) -> None:
        """Drain the replica and wait for its end."""
        self.controller.notify(Drain(timeout_s=timeout_s))
        while not isinstance(await self.controller.next(), Drained):
            pass
        await asyncio.wait_for(self.task, WAIT_S)


@asynccontextmanager
async def staged(
    directory: Path,
    func_or_class: Any,
    *args: Any,
    options: dict[str, Any] | None = None,
    by_value: bool = False,
    **kwargs: Any,
) -> AsyncIterator[Stage]:
    """Start a replica of `func_or_class(*args, **kwargs)`; `by_value` pickles it as users' are."""
    loop = asyncio.get_running_loop()
    controller = FakeController()
    hello = Hello(role="controller", id="c", pid=1)
    listener = Listener(hello, KEY, controller.on_ready)
    address = await listener.start(str(directory / "controller.sock"), node_id="node", host=None)
    fields: dict[str, Any] = {
        "replica_id": "app#D#x1",
        "deployment": DeploymentId("app", "D"),
        "socket_path": str(directory / "replica.sock"),
        "ledger_path": str(directory / "replica.ledger"),
        "key": KEY,
        "controller": address,
        "func_or_class": serialization.pack_callable(func_or_class)
        if by_value
        else pickle.dumps(_Reference(func_or_class)),
        "init_args": bytes(serialization.pack((args, kwargs)).data),
        **(options or {}),
    }
    config = ReplicaConfig(**fields)
    stage = Stage(directory, controller, config)
    stage.replica = Replica(config, loop, node_id="node")
    stage.task = asyncio.ensure_future(stage.replica.run())
    stage.ready = await controller.next()
    try:
        yield stage
    finally:
        if not stage.task.done() and isinstance(stage.ready, ReplicaReady):
            stage.controller.notify(Drain(timeout_s=0.2))
        await asyncio.wait_for(stage.task, WAIT_S)
        listener.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario on serve's event loop."""
    patch = pytest.MonkeyPatch()
    patch.setattr(process, "set_process_link", lambda link: None)  # no engine runs here
    loop = new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(scenario(), 60.0))
        loop.run_until_complete(cancel_all())
    finally:
        patch.undo()
        context.set_replica_context(None)
        loop.close()
