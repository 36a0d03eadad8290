"""Addresses of workers, and ports that stay free until a framework binds them."""

from __future__ import annotations

import socket

import pytest

from syncline.train.backend import Worker, hold_port, host_and_port, hosts_of, release_ports


def worker(rank: int, node: str) -> Worker:
    return Worker(
        rank=rank,
        node_id=node,
        node_ip=f"10.0.0.{node}",
        hostname=f"host{node}",
        pid=1,
        local_rank=0,
        local_world_size=1,
        node_rank=0,
        gpu_ids=[],
    )


def test_workers_of_one_node_meet_on_the_loopback_interface() -> None:
    assert hosts_of([worker(0, "1"), worker(1, "1")]) == ["127.0.0.1", "127.0.0.1"]
    assert hosts_of([worker(0, "1"), worker(1, "2")]) == ["10.0.0.1", "10.0.0.2"]


def test_addresses_of_both_families_are_written_with_their_port() -> None:
    assert host_and_port("10.0.0.1", 80) == "10.0.0.1:80"
    assert host_and_port("fd00::1", 80) == "[fd00::1]:80"


def test_a_held_port_is_nobody_elses_until_it_is_released() -> None:
    port = hold_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    release_ports()
    with socket.socket() as framework:
        framework.bind(("", port))
