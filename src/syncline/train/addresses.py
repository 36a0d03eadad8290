"""Where the workers of a group find each other: addresses, and ports for frameworks that open them
by themselves.

Such a framework is told a port number and binds it later, so the number must stay free until then:
the worker holds it. Frameworks that take an open socket (torch) need none of this.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from syncline.train.backend import Worker

LOOPBACK = "127.0.0.1"

_held: list[socket.socket] = []


def hosts_of(workers: Sequence[Worker]) -> list[str]:
    """By rank, the address under which the others reach a worker: the loopback interface where all
    are on one node.
    """
    one_node = len({worker.node_id for worker in workers}) == 1
    return [LOOPBACK if one_node else worker.node_ip for worker in workers]


def host_and_port(host: str, port: int) -> str:
    """The two as one text, `10.0.0.1:8476` or `[fd00::1]:8476`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_this_process(worker: Worker) -> bool:
    """Whether a worker is an object in the controller's own process, as the inline engine has
    it.
    """
    return worker.pid == os.getpid() and worker.hostname == socket.gethostname()


def hold_port() -> int:
    """A free port of this worker, which no other process is given before `release_ports`."""
    holder = socket.socket()
    holder.bind(("", 0))
    _held.append(holder)
    port: int = holder.getsockname()[1]
    return port


def release_ports() -> None:
    """The framework is about to bind what `hold_port` has returned in this process."""
    while _held:
        _held.pop().close()
