"""`GrpcCall`: one call of a gRPC client, between grpcio's coroutine and the link."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from syncline.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
)
from syncline.serve.routing.router import Call
from syncline.serve.wire.frames import Kind, decode_window, encode_window
from syncline.serve.wire.grpc_frames import (
    END_OF_MESSAGES,
    MESSAGE,
    Code,
    GrpcHead,
    GrpcStatus,
    decode_status,
    encode_head,
)

if TYPE_CHECKING:
    from syncline.serve.routing.link import Link
    from syncline.serve.wire.routes import DeploymentId


class GrpcCall(Call):
    """A call. Its coroutine awaits `reply` or iterates `replies`, and then calls `close`."""

    def __init__(
        self, link: Link, deployment: DeploymentId, head: GrpcHead, message: bytes
    ) -> None:
        super().__init__(deployment, Kind.GRPC, encode_head(head, message))
        self.model_id = head.multiplexed_model_id
        self.session_id = head.session_id
        self.request_id = head.request_id
        self.app = head.app
        self.timeout_s = head.timeout_s
        self.status = GrpcStatus()
        """Status at the end of the call; the code is None if user code set none."""
        self.compression: int | None = None
        """Compression of the messages, known at the first one."""
        self._link = link
        self._frames: deque[tuple[int, bytes]] = deque()
        self._is_done = False
        self._window = 0
        self._waiter: asyncio.Future[None] | None = None
        self._window_waiter: asyncio.Future[None] | None = None

    # -- from the link

    def on_frame(self, kind: int, payload: bytes) -> None:
        """Store a part of the answer, or a grant for the client's messages."""
        if kind == Kind.WINDOW:
            self.can_resend = False
            self._window += decode_window(payload)
            _wake(self._window_waiter)
            return
        if kind == Kind.CHUNK:
            self.can_resend = False
        elif kind != Kind.START:
            self._is_done = True
        self._frames.append((kind, payload))
        _wake(self._waiter)

    def on_failed(self, error: Exception) -> None:
        """End the call with the status of an error of serve."""
        self._is_done = True
        self.status = self._failure(error)
        _wake(self._waiter)

    # -- from the coroutine of the call

    async def reply(self) -> bytes:
        """Return the only message of the answer; empty without one."""
        async for message in self.replies():
            return message
        return b""

    async def replies(self) -> AsyncIterator[bytes]:
        """Yield the messages of the answer; the replica may send more as they are taken."""
        while True:
            while not self._frames:
                if self._is_done:
                    return
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
            kind, payload = self._frames.popleft()
            if kind == Kind.CHUNK:
                yield payload
                self._link.send(self, Kind.WINDOW, encode_window(len(payload)))
                continue
            self.status, message = decode_status(payload)
            if self.status.compression is not None:
                self.compression = self.status.compression
            if kind == Kind.VALUE:
                yield message
            if kind != Kind.START:
                return

    async def send_messages(self, messages: AsyncIterator[bytes]) -> None:
        """Send the messages of a streaming client, each when the replica has room for it."""
        await self._wait_for_window()
        async for message in messages:
            self._window -= len(message) + 1
            self._link.send(self, Kind.BODY, MESSAGE, message)
            await self._wait_for_window()
        self._link.send(self, Kind.BODY, END_OF_MESSAGES)

    def close(self) -> None:
        """Cancel the call if it has no answer yet, and drop its messages."""
        if not self._is_done:
            self._is_done = True
            self._link.cancel(self)
        self.parts = ()
        self._frames.clear()

    async def _wait_for_window(self) -> None:
        while self._window <= 0:
            self._window_waiter = asyncio.get_running_loop().create_future()
            await self._window_waiter

    def _failure(self, error: Exception) -> GrpcStatus:
        code = Code.INTERNAL
        text = str(error)
        if isinstance(error, BackPressureError):
            code = Code.RESOURCE_EXHAUSTED
        elif isinstance(error, DeploymentUnavailableError):
            code = Code.UNAVAILABLE
        elif isinstance(error, ReplicaUnavailableError):
            code = Code.INTERNAL if error.is_poison else Code.UNAVAILABLE
        elif isinstance(error, TimeoutError):
            code = Code.DEADLINE_EXCEEDED
            limit = "" if self.timeout_s is None else f" after {self.timeout_s:g}s"
            text = f"Request timed out{limit}."
        return GrpcStatus(int(code), text)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
