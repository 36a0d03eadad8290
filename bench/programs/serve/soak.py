"""Growth of a server over many requests, while its replicas are replaced and clients disconnect.

BENCH_SOAK_REQUESTS sets the number of requests: 200 000 if unset; 5 million are about as many as in
a day at 58 per second. Memory, descriptors and threads are those of all of its processes, with the
same number of replicas, before and after.
"""

import os
import random
import signal
import socket
import struct
import threading
import time
from dataclasses import dataclass

import psutil

from bench.programs import common
from bench.programs.serve import load, server
from bench.programs.serve.apps.options import HOST, STREAM_PATH
from bench.programs.serve.load import Body

REQUESTS = "BENCH_SOAK_REQUESTS"
DEFAULT_REQUESTS = 200_000
WARM_SHARE = 0.1
CONNECTIONS = 16
SLICE_S = 5
DISCONNECT_PAUSE_S = 0.01
SETTLE_S = 4.0
SETTLE_LIMIT_S = 60.0
BODY = Body(content=b"x" * 64)
RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Resources of all processes of a server."""

    memory_bytes: int
    descriptors: int
    threads: int
    processes: int


def usage(processes: list[psutil.Process]) -> Usage:
    """Return the resources of processes; memory is what would be free without them (USS)."""
    memory = descriptors = threads = count = 0
    for process in processes:
        try:
            own = (process.memory_full_info().uss, process.num_fds(), process.num_threads())
        except psutil.NoSuchProcess:
            continue
        memory, descriptors, threads = (memory + own[0], descriptors + own[1], threads + own[2])
        count += 1
    return Usage(memory_bytes=memory, descriptors=descriptors, threads=threads, processes=count)


class Disconnecting:
    """A thread with clients that leave within the head, within the body, before the answer, and
    within a stream; some of them by a reset.
    """

    def __init__(self, port: int) -> None:
        self.count = 0
        self._port = port
        self._random = random.Random(0)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disconnecting", daemon=True)

    def __enter__(self) -> "Disconnecting":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        head = f"POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 64\r\n\r\n".encode()
        stream = f"POST {STREAM_PATH} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 0\r\n\r\n"
        requests = (head[:20], head, head + b"x" * 20, head + b"x" * 64, stream.encode())
        while not self._stopped.wait(DISCONNECT_PAUSE_S):
            try:
                self._leave(self._random.choice(requests), read=self._random.random() < 0.5)
            except OSError:
                continue
            self.count += 1

    def _leave(self, request: bytes, *, read: bool) -> None:
        with socket.create_connection((HOST, self._port), timeout=1.0) as connection:
            connection.sendall(request)
            if read:
                connection.settimeout(0.02)
                try:
                    connection.recv(100)
                except TimeoutError:
                    pass
            elif self._random.random() < 0.5:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def churn(target: server.Server, requests: int) -> tuple[int, int, int, float]:
    """Send at least so many requests while replicas are replaced and clients leave. Return the
    numbers of requests, of failed ones and of clients that left, and the seconds.
    """
    sent = failed = 0
    begin = time.monotonic()
    os.kill(target.pid, signal.SIGUSR1)
    with Disconnecting(target.port) as disconnecting:
        while sent < requests:
            outcome = load.generate(target.url(), BODY, connections=CONNECTIONS, seconds=SLICE_S)
            if not outcome.requests:
                raise RuntimeError(f"no answer within {SLICE_S} s, after {sent} requests")
            sent, failed = sent + outcome.requests, failed + outcome.failed
    seconds = time.monotonic() - begin
    os.kill(target.pid, signal.SIGUSR1)
    return sent, failed, disconnecting.count, seconds


def settled(target: server.Server) -> Usage:
    """Return the resources once the number of processes has been the same for some seconds.

    Raises:
        RuntimeError: It changes all the time.
    """
    deadline = time.monotonic() + SETTLE_LIMIT_S
    current, since = usage(target.processes()), time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(0.2)
        last, current = current, usage(target.processes())
        if current.processes != last.processes:
            since = time.monotonic()
        elif time.monotonic() - since >= SETTLE_S:
            return current
    raise RuntimeError(f"processes come and go {SETTLE_LIMIT_S:g} s after the last update")


def measure() -> common.Values:
    """Return the values of syncline."""
    requests = int(os.environ.get(REQUESTS) or DEFAULT_REQUESTS)
    with server.running("churn", "", "/", BODY) as target:
        churn(target, int(requests * WARM_SHARE))
        before = settled(target)
        sent, failed, left, seconds = churn(target, requests)
        after = settled(target)
    print(f"user: before {before}, after {after}")
    return {
        "requests": sent,
        "failed": failed,
        "left": left,
        "rate": sent / seconds,
        "memory_mb": after.memory_bytes / 1e6,
        "memory_growth_mb": (after.memory_bytes - before.memory_bytes) / 1e6,
        "descriptor_growth": after.descriptors - before.descriptors,
        "thread_growth": after.threads - before.threads,
        "process_growth": after.processes - before.processes,
    }


if __name__ == "__main__":
    options = common.arguments()
    common.write(options.out, measure())
