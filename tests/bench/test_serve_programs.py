"""Parts of the serving benchmarks that all of their contenders share."""

import asyncio
import os
import subprocess
import sys

import pytest

from bench.programs.serve import load, server, soak, stream_client
from bench.programs.serve.apps.options import CHUNKS, HOST, TOKEN


def test_totals_of_wrk_are_in_its_last_line() -> None:
    outcome = load.parse(
        "Running 2s test @ http://127.0.0.1:1/\n  requests and so on\n\n"
        '{"requests": 3000, "duration_us": 2000000, "p50_us": 250.5, "p99_us": 4000.0,'
        ' "failed": 2}\n'
    )
    assert outcome == load.Load(requests=3000, seconds=2.0, p50_ms=0.2505, p99_ms=4.0, failed=2)
    assert outcome.rate == 1500


def test_missing_wrk_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(RuntimeError, match="apt-get install wrk"):
        load.generate("http://127.0.0.1:1/", load.Body(content=b""), connections=1, seconds=1)


def test_processes_of_a_server_include_descendants_without_its_id() -> None:
    child = "import time; print('up', flush=True); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], env={{}})"
    process = subprocess.Popen(
        [sys.executable, "-c", parent],
        env={**os.environ, server.SERVER_ID: "a server"},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        found = server.processes_of("a server")
        assert len(found) == 2
        assert soak.usage(found).processes == 2
        assert server.processes_of("another server") == []
    finally:
        server.kill(server.processes_of("a server"))
        process.communicate()
    assert server.processes_of("a server") == []


async def _read(chunks: int) -> list[stream_client.Streams]:
    """Read two turns of three streams from a server that sends so many chunks in each."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            chunk = f"{len(TOKEN):x}\r\n{TOKEN}\r\n".encode()
            writer.write(chunk * chunks)
            await writer.drain()
            writer.write(b"0\r\n")
            await asyncio.sleep(0.01)
            writer.write(b"\r\n")
        writer.close()

    listening = await asyncio.start_server(handle, HOST, 0)
    try:
        port = listening.sockets[0].getsockname()[1]
        return await stream_client.read(port, "/", streams=3, turns=2)
    finally:
        listening.close()


def test_streams_are_read_at_once_and_their_chunks_counted() -> None:
    turns = asyncio.run(_read(CHUNKS))
    assert [turn.chunks for turn in turns] == [3 * CHUNKS] * 2
    for turn in turns:
        assert len(turn.first_chunk_s) == 3
        assert 0 < turn.first_chunk_s[0] <= turn.first_chunk_s[-1] <= turn.seconds


def test_incomplete_streams_are_an_error() -> None:
    with pytest.raises(RuntimeError, match=f"streams of \\[7\\] chunks, not of {CHUNKS}"):
        asyncio.run(_read(7))
