"""Connections of this process to other hosts, with real sockets."""

from __future__ import annotations

import socket
import sys

import pytest

from syncline.diagnosis.host_links import read_links

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="`struct tcp_info` of Linux")


def test_a_connection_between_two_addresses_is_a_link_and_one_within_a_host_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with (
            socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0)) as other,
            socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.1", 0)) as own,
        ):
            for each in (other, own):
                each.sendall(b"gradients")
            found = [link for link in read_links() if link.remote == ("127.0.0.1", port)]
            assert [link.local for link in found] == [other.getsockname()]
            assert 0 < found[0].round_trip_s < 60
            assert other.fileno() >= 0  # reading leaves it open
            other.sendall(b"more")
