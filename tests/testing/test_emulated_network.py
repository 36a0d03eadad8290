"""Hosts of an emulated network, as processes: they reach each other, with delays."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from syncline.testing import emulated_network


def skip_where_no_network_can_be_emulated() -> None:
    if why := emulated_network.obstacle():
        pytest.skip(why)


HOST = """
import socket, sys, time
from syncline.testing import emulated_network

network, number = sys.argv[1], int(sys.argv[2])
host = emulated_network.join(network, number)
if number == 0:
    server = socket.create_server((emulated_network.address(0), 5000))
    print("ready", flush=True)
    connection, _ = server.accept()
    while data := connection.recv(100):
        connection.sendall(data)
else:
    input()  # until host 0 is ready
    connection = socket.create_connection((emulated_network.address(0), 5000))
    for delay_s in (0.0, 0.15):
        host.delay(delay_s)
        trip_s = -1.0
        while trip_s < 2 * delay_s:  # until the switch has read the delay
            began = time.monotonic()
            connection.sendall(b"ping")
            connection.recv(100)
            trip_s = time.monotonic() - began
        print(trip_s)
"""


def test_hosts_reach_each_other_and_packets_of_a_delayed_host_are_late() -> None:
    skip_where_no_network_can_be_emulated()
    with emulated_network.emulated_network(hosts=2) as network:
        hosts = [
            subprocess.Popen(
                [sys.executable, "-c", HOST, network, str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(2)
        ]
        assert hosts[0].stdout is not None
        assert hosts[0].stdout.readline() == "ready\n"
        output, _ = hosts[1].communicate("go\n", timeout=60)
        hosts[0].communicate(timeout=60)
    usual_s, delayed_s = map(float, output.split())
    assert delayed_s >= 0.3  # there and back
    assert usual_s < delayed_s


def test_the_obstacle_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated_network, "obstacle", lambda: "only root may do it")
    with pytest.raises(PermissionError, match="only root may do it"):
        emulated_network.emulated_network(hosts=2).__enter__()


@pytest.mark.parametrize("hosts", [0, -1, 201])
def test_a_number_of_hosts_out_of_range_is_named(hosts: int) -> None:
    with pytest.raises(ValueError, match=f"`hosts={hosts}`: pass a number from 1 to 200"):
        emulated_network.emulated_network(hosts).__enter__()


def test_a_network_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConnectionError, match=r"No switch has the name 'nowhere' \(Connection"):
        emulated_network.join("nowhere", 0)
    with pytest.raises(ValueError, match="`host=200`: pass a number from 0 to 199"):
        emulated_network.join("nowhere", 200)


def test_a_negative_delay_is_refused() -> None:
    ours, _ = socket.socketpair()
    with ours, pytest.raises(ValueError, match=r"`delay\(-0.1\)`: pass a number of seconds"):
        emulated_network.EmulatedHost(ours).delay(-0.1)
