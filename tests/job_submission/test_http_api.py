"""The client of a cluster's job API: addresses, servers without WebSockets.

Requests are tested with the commands, in `tests/cli`.
"""

import socket
import threading

import pytest

from syncline.job_submission import http_api
from syncline.job_submission.errors import JobError, JobServerUnreachableError


@pytest.mark.parametrize(
    ("address", "urls"),
    [
        (None, ["http://127.0.0.1:8265"]),
        ("auto", ["http://127.0.0.1:8265"]),
        ("https://head", ["https://head"]),
        ("head", ["http://head:8265"]),
        ("head:6379", ["http://head:6379", "http://head:8265"]),
        ("ray://head:10001", ["http://head:8265"]),
    ],
)
def test_address_may_be_the_clusters_own(address, urls):
    assert http_api.candidates(address) == urls


def test_address_without_a_server_is_in_the_first_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(JobServerUnreachableError) as raised:
        http_api.find(url)
    assert str(raised.value).splitlines()[0] == f"no cluster accepts jobs at {url}:"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\n\r\n",
        b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: stale\r\n\r\n",
        b"SSH-2.0\r\n\r\n",
    ],
)
def test_server_without_websockets_is_named(answer):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse():
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        threading.Thread(target=refuse, daemon=True).start()
        api = http_api.JobApi(f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(JobError, match="accepts no WebSocket"):
            api._connect("/tail")
