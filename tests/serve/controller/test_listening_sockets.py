"""The listening socket of a controller: passed to proxies, and returned after a restart."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from syncline.serve.controller.listening_sockets import ListeningSockets
from syncline.serve.proxy.listening import (
    open_listening_socket,
    receive_listening_socket,
    return_listening_socket,
)
from syncline.serve.proxy_options import HTTPOptions


def restarted(path: str) -> tuple[socket.socket, ListeningSockets]:
    """Return the socket of a proxy, and the sockets of a controller that waits for its return."""
    of_proxy = open_listening_socket("127.0.0.1", 0)
    host, port = of_proxy.getsockname()
    sockets = ListeningSockets(asyncio.get_running_loop(), path)
    sockets.resume(HTTPOptions(host=host, port=port))
    return of_proxy, sockets


def test_a_restarted_controller_gets_the_socket_back_from_a_proxy(tmp_path: Path) -> None:
    path = str(tmp_path / "fds")

    async def restart() -> None:
        of_proxy, sockets = restarted(path)
        address = of_proxy.getsockname()
        with pytest.raises(OSError, match="does not listen"):
            await asyncio.to_thread(receive_listening_socket, path)
        await asyncio.to_thread(return_listening_socket, path, of_proxy)
        received = await asyncio.to_thread(receive_listening_socket, path)
        assert received.getsockname() == address
        received.close()
        of_proxy.close()  # the proxy is killed
        socket.create_connection(address, timeout=60).close()
        sockets.open(HTTPOptions(host=address[0], port=address[1]))  # for its successor
        sockets.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=60)

    asyncio.run(restart())


def test_a_socket_that_is_not_wanted_is_closed(tmp_path: Path) -> None:
    path = str(tmp_path / "fds")

    async def stop() -> None:
        of_proxy, sockets = restarted(path)
        address = of_proxy.getsockname()
        sockets.close_listening()
        await asyncio.to_thread(return_listening_socket, path, of_proxy)
        of_proxy.close()
        with pytest.raises(OSError, match="does not listen"):
            await asyncio.to_thread(receive_listening_socket, path)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=60)
        sockets.close()

    asyncio.run(stop())
