"""A client that reads many chunked streams at once on one event loop and counts their chunks.

It does not parse the responses: every chunk ends with a character that occurs nowhere else.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.programs.serve.apps.options import CHUNKS, HOST, TOKEN

MARK = TOKEN[-1].encode()
END = b"0\r\n\r\n"
TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Outcome of one set of concurrent streams."""

    first_chunk_s: Sequence[float]
    """Seconds from the request to the first chunk, one value per stream, sorted."""
    chunks: int
    seconds: float
    """Seconds from the first request to the end of the last stream."""


class _Stream(asyncio.Protocol):
    """One connection, which asks for one stream after the other."""

    def __init__(self) -> None:
        self.first_chunk_s = 0.0
        self.chunks = 0
        self._transport: asyncio.Transport | None = None
        self._begin = 0.0
        self._tail = b""
        self._ended: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        count = data.count(MARK)
        if count and not self.chunks:
            self.first_chunk_s = time.perf_counter() - self._begin
        self.chunks += count
        self._tail = (self._tail + data)[-len(END) :]
        if self._tail == END and self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(ConnectionError(f"the stream was cut off: {error}"))

    async def ask(self, request: bytes) -> None:
        """Send a request, and wait for the end of its stream."""
        assert self._transport is not None
        self.chunks, self._tail = 0, b""
        self._ended = asyncio.get_running_loop().create_future()
        self._begin = time.perf_counter()
        self._transport.write(request)
        await self._ended

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


async def read(port: int, path: str, *, streams: int, turns: int) -> list[Streams]:
    """Open the connections, then read one stream on each at once, `turns` times.

    Raises:
        RuntimeError: A stream has another number of chunks than the application sends.
        ConnectionError: A connection was closed within a stream.
        TimeoutError: The streams do not end in time.
    """
    loop = asyncio.get_running_loop()
    request = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 0\r\n\r\n".encode()
    clients: list[_Stream] = []
    outcomes = []
    try:
        for _ in range(streams):
            _, client = await loop.create_connection(_Stream, HOST, port)
            clients.append(client)
        for _ in range(turns):
            begin = time.perf_counter()
            await asyncio.wait_for(
                asyncio.gather(*(client.ask(request) for client in clients)), TIMEOUT_S
            )
            seconds = time.perf_counter() - begin
            received = [client.chunks for client in clients]
            if set(received) != {CHUNKS}:
                raise RuntimeError(f"streams of {sorted(set(received))} chunks, not of {CHUNKS}")
            outcomes.append(
                Streams(
                    first_chunk_s=sorted(client.first_chunk_s for client in clients),
                    chunks=sum(received),
                    seconds=seconds,
                )
            )
    finally:
        for client in clients:
            client.close()
    return outcomes
