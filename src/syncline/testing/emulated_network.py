"""An emulated network between processes of this machine, with delays: `emulated_network`.

    with emulated_network(hosts=3) as network:
        ...  # start processes that call join(network, number)

Each host is a separate network namespace with one interface (TUN). Another process, the switch,
forwards packets between the hosts. Needs Linux, the right to create namespaces (CAP_SYS_ADMIN,
CAP_NET_ADMIN) and /dev/net/tun. Not covered: lost packets, limited bandwidth.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import math
import os
import secrets
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

MOST_HOSTS = 200
INTERFACE = "tun0"
MTU = 32_000
_TUN = "/dev/net/tun"
_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU, _SIOCSIFFLAGS = 0x8916, 0x891C, 0x8922, 0x8914
_IFF_UP_RUNNING = 0x41
_DELAY = struct.Struct("=d")


def address(host: int) -> str:
    """Return the IP address of a host, numbered from 0."""
    return f"10.77.0.{host + 1}"


@cache
def obstacle() -> str | None:
    """Return why this process cannot emulate a network; None if it can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces exist on Linux only"
    tried = subprocess.run(
        [sys.executable, "-m", "syncline.testing.emulated_network"], capture_output=True, text=True
    )
    return tried.stderr.strip().rpartition("\n")[2] if tried.returncode else None


@contextmanager
def emulated_network(hosts: int) -> Iterator[str]:
    """Run a switch between hosts; yield its name, for `join`.

    Args:
        hosts: Number of hosts, up to `MOST_HOSTS`.

    Raises:
        PermissionError: This process cannot emulate a network; the message says why.
        ValueError: `hosts` is out of range.
    """
    if not 1 <= hosts <= MOST_HOSTS:
        raise ValueError(f"`hosts={hosts!r}`: pass a number from 1 to {MOST_HOSTS}.")
    why = obstacle()
    if why is not None:
        raise PermissionError(f"A network cannot be emulated here: {why}.")
    name = f"syncline-network-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(f"\0{name}")  # not a file, which would survive a kill
        server.listen(hosts)
        switch = subprocess.Popen(
            [sys.executable, "-m", "syncline.testing.emulated_network", str(server.fileno())],
            pass_fds=[server.fileno()],
            stdin=subprocess.PIPE,  # its end tells the switch to end
        )
    try:
        yield name
    finally:
        switch.communicate()


class EmulatedHost:
    """Host of this thread, and of the threads and processes that it starts from now on."""

    interface = INTERFACE

    def __init__(self, switch: socket.socket) -> None:
        self._switch = switch

    def delay(self, seconds: float) -> None:
        """Delay each packet from and to this host by so many seconds from now on.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"`delay({seconds!r})`: pass a number of seconds, 0 or more.")
        self._switch.sendall(_DELAY.pack(seconds))


def join(network: str, host: int) -> EmulatedHost:
    """Move the calling thread to a new host.

    Args:
        network: The name that `emulated_network` yields.
        host: Number of the host, from 0.

    Raises:
        ConnectionError: The network has ended, or is another one.
        ValueError: `host` is out of range.
    """
    if not 0 <= host < MOST_HOSTS:
        raise ValueError(f"`host={host!r}`: pass a number from 0 to {MOST_HOSTS - 1}.")
    switch = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        switch.connect(f"\0{network}")
    except OSError as error:
        raise ConnectionError(
            f"No switch has the name {network!r} ({error.strerror}): pass the one that "
            "`emulated_network` yields, before its context ends."
        ) from None
    tun = _new_host(address(host))
    socket.send_fds(switch, [bytes([host])], [tun])
    os.close(tun)
    return EmulatedHost(switch)


def _new_host(ip: str) -> int:
    """Move this thread to a new namespace; return the descriptor of its interface."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "this process may not create a network namespace")
    tun = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(
        tun, _TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), _IFF_TUN_WITHOUT_HEADER)
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _configure(control, INTERFACE, ip)
        _set_up(control, "lo")
    return tun


def _configure(control: socket.socket, interface: str, ip: str) -> None:
    name = interface.encode()
    for request, value in ((_SIOCSIFADDR, ip), (_SIOCSIFNETMASK, "255.255.255.0")):
        packed = struct.pack("16sHH4s16x", name, socket.AF_INET, 0, socket.inet_aton(value))
        fcntl.ioctl(control, request, packed)
    fcntl.ioctl(control, _SIOCSIFMTU, struct.pack("16si20x", name, MTU))
    _set_up(control, interface)


def _set_up(control: socket.socket, interface: str) -> None:
    flags = struct.pack("16sH22x", interface.encode(), _IFF_UP_RUNNING)
    fcntl.ioctl(control, _SIOCSIFFLAGS, flags)


class _Switch:
    """Forwards packets between the hosts until the standard input ends.

    Args:
        server: Listening socket to which the hosts connect.
    """

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._has_ended = False
        self._interfaces: dict[bytes, int] = {}  # by IP address
        self._delays_s: dict[bytes, float] = {}
        self._queue: list[tuple[float, int, int, bytes]] = []  # time, order, interface, packet
        self._order = 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ, self._accept)
        self._selector.register(sys.stdin, selectors.EVENT_READ, self._end)

    def run(self) -> None:
        while not self._has_ended:
            now = time.monotonic()
            while self._queue and self._queue[0][0] <= now:
                _, _, interface, packet = heapq.heappop(self._queue)
                _write(interface, packet)
            wait_s = max(0.0, self._queue[0][0] - now) if self._queue else None
            for key, _ in self._selector.select(wait_s):
                key.data()

    def _end(self) -> None:
        self._has_ended = True

    def _accept(self) -> None:
        connection, _ = self._server.accept()
        data, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        ip, interface = socket.inet_aton(address(data[0])), descriptors[0]
        os.set_blocking(interface, False)
        self._interfaces[ip], self._delays_s[ip] = interface, 0.0

        def delayed() -> None:
            data = connection.recv(_DELAY.size)
            if data:
                (self._delays_s[ip],) = _DELAY.unpack(data)
            else:
                self._selector.unregister(connection)

        def arrived() -> None:
            with suppress(BlockingIOError, OSError):
                while packet := os.read(interface, MTU + 64):
                    self._forward(ip, packet)

        self._selector.register(connection, selectors.EVENT_READ, delayed)
        self._selector.register(interface, selectors.EVENT_READ, arrived)

    def _forward(self, source: bytes, packet: bytes) -> None:
        target = packet[16:20]
        if packet[0] >> 4 != 4 or target not in self._interfaces:  # for example IPv6
            return
        delay_s = self._delays_s[source] + self._delays_s[target]
        if not delay_s:
            _write(self._interfaces[target], packet)
            return
        self._order += 1
        due = time.monotonic() + delay_s
        heapq.heappush(self._queue, (due, self._order, self._interfaces[target], packet))


def _write(interface: int, packet: bytes) -> None:
    with suppress(OSError):  # a host that has ended, or a full queue: TCP repeats the packet
        os.write(interface, packet)


if __name__ == "__main__":
    if len(sys.argv) == 1:  # asked by `obstacle`
        _new_host(address(0))
    else:
        _Switch(socket.socket(fileno=int(sys.argv[1]))).run()
