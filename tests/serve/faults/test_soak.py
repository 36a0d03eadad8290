"""Growth over many requests while replicas are replaced and clients vanish.

20 000 requests, and with the mark `long` 200 000 or as many as SYNCLINE_TEST_SOAK_REQUESTS says.
`bench/programs/serve/soak.py` is the same with millions of requests and a faster client.
"""

import os
import signal
import socket
import threading

import pytest

from bench.programs.serve import server, soak

pytestmark = pytest.mark.processes

LONG_REQUESTS = int(os.environ.get("SYNCLINE_TEST_SOAK_REQUESTS", "200000"))
CLIENTS = 4
PIPELINED = 16
BODY = soak.BODY.content
REQUEST = (
    f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
) * PIPELINED


class Count:
    """Answers of all clients."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.answered = 0
        self.failed = []
        self.lock = threading.Lock()


def ask(port, count):
    """Send pipelined requests until enough were answered."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            answers = client.makefile("rb")
            while count.answered < count.wanted and not count.failed:
                client.sendall(REQUEST)
                for _ in range(PIPELINED):
                    read_answer(answers)
                with count.lock:
                    count.answered += PIPELINED
    except Exception as error:
        count.failed.append(repr(error))


def read_answer(answers):
    status = answers.readline()
    length = 0
    while (line := answers.readline()) != b"\r\n":
        assert line, "the connection was closed"
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    body = answers.read(length)
    assert (status.split()[1], body) == (b"200", BODY), (status, body)


def churn(target, requests):
    """Send requests while replicas are replaced and other clients vanish."""
    count = Count(requests)
    threads = [threading.Thread(target=ask, args=(target.port, count)) for _ in range(CLIENTS)]
    os.kill(target.pid, signal.SIGUSR1)
    with soak.Disconnecting(target.port) as disconnecting:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    os.kill(target.pid, signal.SIGUSR1)
    assert count.failed == []
    assert disconnecting.count > 10


@pytest.mark.parametrize(
    "requests",
    [20_000, pytest.param(LONG_REQUESTS, marks=[pytest.mark.long, pytest.mark.timeout(3600)])],
)
def test_resources_do_not_grow(requests):
    with server.running("churn", "", "/", soak.BODY) as target:
        churn(target, 5_000)
        before = soak.settled(target)
        churn(target, requests)
        after = soak.settled(target)
    print(before, after)
    assert after.processes == before.processes
    assert after.threads - before.threads <= 2
    assert after.descriptors - before.descriptors <= 4
    assert after.memory_bytes - before.memory_bytes < 20e6
