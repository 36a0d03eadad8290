"""The dashboard's process: finds a port, guards what it serves, says where it is, and ends at once
when it is told to.

The web framework loads here, when `serve` is called.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import resource
import secrets
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

import psutil

from syncline import settings
from syncline.dashboard.catalogue import Catalogue
from syncline.dashboard.security import Policy, allowed_hosts, is_loopback, new_token
from syncline.runs import dashboards
from syncline.runs.places import Place

DEFAULT_PORT = 8265
TRIED_PORTS = 30
"""So many ports are tried, from the default on."""


class PortTakenError(OSError):
    """Nothing can listen there."""


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """How to serve."""

    storages: Sequence[Place]
    """What is shown."""
    host: str = "127.0.0.1"
    """The address or name to listen on."""
    port: int | None = None
    """The port; None for the default one or the next that is free, 0 for any."""
    address: str | None = None
    """The cluster whose runs can be acted on, and that the page of the cluster shows."""
    allowed_hosts: Sequence[str] = ()
    """Names by which the dashboard may be asked for, besides its own: those of proxies."""
    open_browser: bool = False
    """Whether to open it in the user's browser."""


def serve(options: ServerOptions, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        options: How.
        say: Takes the lines that the user is to read: the first is the address.
        warn: Takes warnings.

    Raises:
        PortTakenError: Something else listens there.
        OSError: It is no address of this machine.
    """
    listening = listen(options.host, options.port)
    port: int = listening.getsockname()[1]
    token = kept_token(warn)
    loopback = is_loopback(options.host)
    policy = Policy(
        token=token,
        first_token=new_token() if options.open_browser else None,
        port=port,
        loopback=loopback,
        hosts=allowed_hosts(options.host, own_addresses(), options.allowed_hosts),
    )
    paths = [storage.path for storage in options.storages]
    url = f"http://{shown_host(options.host)}:{port}"
    catalogue = Catalogue(options.storages)
    stop = threading.Event()
    _allow_many_files()
    threading.Thread(
        target=catalogue.keep_up, args=(stop,), daemon=True, name="dashboard-catalogue"
    ).start()
    run = _runner(catalogue, options.address, policy)
    for other in covering(paths):
        say(f"Another dashboard of yours shows this already: {other.url}")
    say(f"Dashboard: {url}/?token={token}")
    if not loopback:
        warn(
            "it can be reached from other machines, and what is sent, the token too, is not encrypted: on a network that others use, "
            f"leave out --host and reach it through SSH instead: ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}"
        )
    if options.open_browser:
        threading.Thread(
            target=webbrowser.open, args=(f"{url}/?token={policy.first_token}",), daemon=True
        ).start()
    try:
        with announced(url, paths, warn), ended_by(signal.SIGTERM):
            run(sockets=[listening])
    except (KeyboardInterrupt, SystemExit):
        pass  # how one ends it
    finally:
        stop.set()
        listening.close()


def _runner(catalogue: Catalogue, address: str | None, policy: Policy) -> Callable[..., None]:
    """What serves on the sockets that it is given, until a signal ends it."""
    # The framework looks there when it is loaded, in the present directory by default; it keeps
    # nothing unless asked to, which nobody does. Nobody knows the name, so nobody can have put
    # something there.
    os.environ["NICEGUI_STORAGE_PATH"] = str(
        settings.temporary_directory() / f"syncline-{secrets.token_hex(16)}"
    )
    for name, level in (("nicegui", logging.ERROR), ("uvicorn", logging.CRITICAL)):
        logging.getLogger(name).setLevel(level)
    run: Callable[..., None] = (
        importlib.import_module("syncline.dashboard.application")
        .server(catalogue, address, policy)
        .run
    )
    return run


def _allow_many_files() -> None:
    """A visitor has a connection, and a record files: as many as the system lets this process have,
    if it is asked.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems have a limit that they do not say
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (hard if soft != resource.RLIM_INFINITY else soft, hard)
        )


def listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens: on the port, or on the default one or the next that is free. Raises as
    `serve` does.
    """
    candidates = range(DEFAULT_PORT, DEFAULT_PORT + TRIED_PORTS) if port is None else (port,)
    for candidate in candidates:
        try:
            return _listen(host, candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    if port is None:
        raise PortTakenError(
            f"all ports from {DEFAULT_PORT} to {DEFAULT_PORT + TRIED_PORTS - 1} are taken: name a free one with --port"
        )
    raise PortTakenError(
        f"port {port} of {host} is taken by another program: name another with --port, or leave --port out"
    )


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
    except OSError:
        made.close()
        raise
    return made


def kept_token(warn: Callable[[str], None]) -> str:
    """The token of this user's dashboards on this machine; one for this process alone where none
    can be kept.
    """
    fresh = new_token()
    try:
        return dashboards.shared_token(fresh)
    except OSError as error:
        warn(
            f"the token cannot be kept for the next dashboard ({error}): its address will be another one"
        )
        return fresh


def covering(paths: Sequence[str]) -> list[dashboards.Dashboard]:
    """The dashboards that are up and show all of these storage paths."""
    return [other for other in dashboards.alive() if set(paths) <= set(other.storage_paths)]


@contextmanager
def announced(url: str, paths: Sequence[str], warn: Callable[[str], None]) -> Iterator[None]:
    """While inside, programs of this user find the dashboard."""
    try:
        dashboards.announce(url, paths)
    except OSError as error:
        warn(
            f"programs will not print the addresses of their runs: the dashboard cannot be announced ({error})"
        )
    try:
        yield
    finally:
        dashboards.withdraw()


@contextmanager
def ended_by(number: signal.Signals) -> Iterator[None]:
    """While inside, the signal ends the process in an orderly way: the server stops, then
    SystemExit is raised.
    """

    def end(signal_number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    before = signal.signal(number, end)
    try:
        yield
    finally:
        signal.signal(number, before)


def own_addresses() -> list[str]:
    """Names and addresses of this machine."""
    addresses = [entry.address for entries in psutil.net_if_addrs().values() for entry in entries]
    return [*addresses, socket.gethostname(), socket.getfqdn()]


def shown_host(host: str) -> str:
    """What stands in addresses for a host to listen on."""
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
