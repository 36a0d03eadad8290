"""Process of the dashboard: selects a port, announces the dashboard, serves until a signal.

The web framework is loaded when `serve` is called. Log messages contain untrusted input of visitors
and records; `install_logging` replaces control characters, which a terminal would obey, and limits
the rate of messages.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import re
import resource
import secrets
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from syncline import settings
from syncline.dashboard.run_index import RunIndex
from syncline.dashboard.security import Policy, allowed_hosts, is_loopback, new_token
from syncline.runs import discovery
from syncline.runs.run_storage import StorageDirectory

DEFAULT_PORT = 8265
TRIED_PORTS = 30
"""Number of ports tried, beginning with the default."""


class PortTakenError(OSError):
    """The port is in use."""


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options of the server."""

    storages: Sequence[StorageDirectory]
    """Storage paths to show."""
    host: str = "127.0.0.1"
    """Address or name to listen on."""
    port: int | None = None
    """Port; None for the default or the next free port, 0 for any free port."""
    address: str | None = None
    """Cluster of the cluster page, whose runs accept actions."""
    allowed_hosts: Sequence[str] = ()
    """Additional accepted host names, for proxies."""
    open_browser: bool = False
    """Open the dashboard in the user's browser."""


def serve(options: ServerOptions, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        options: Options.
        say: Prints lines for the user; the first is the URL.
        warn: Prints warnings.

    Raises:
        PortTakenError: The port is in use.
        OSError: The host is not an address of this machine.
    """
    listening = listen(options.host, options.port)
    port: int = listening.getsockname()[1]
    token = shared_or_new_token(warn)
    loopback = is_loopback(options.host)
    policy = Policy(
        token=token,
        first_token=new_token() if options.open_browser else None,
        port=port,
        loopback=loopback,
        hosts=allowed_hosts(options.host, own_addresses(), options.allowed_hosts),
    )
    paths = [storage.path for storage in options.storages]
    url = f"http://{url_host(options.host)}:{port}"
    run_index = RunIndex(options.storages)
    stop = threading.Event()
    _allow_many_files()
    threading.Thread(
        target=run_index.run_updates, args=(stop,), daemon=True, name="dashboard-run_index"
    ).start()
    run = _runner(run_index, options.address, policy)
    for other in discovery.alive():
        if set(paths) <= set(other.storage_paths):
            say(f"Another dashboard of yours already shows these storage paths: {other.url}")
    say(f"Dashboard: {url}/?token={token}")
    if not loopback:
        warn(
            "The dashboard is reachable from other machines, and its traffic including the token "
            "is not encrypted. On a shared network, omit --host and use an SSH tunnel: "
            f"ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}"
        )
    if options.open_browser:
        threading.Thread(
            target=webbrowser.open, args=(f"{url}/?token={policy.first_token}",), daemon=True
        ).start()
    try:
        discovery.announce(url, paths)
    except OSError as error:
        warn(
            f"Programs will not print the URLs of their runs: the dashboard cannot be announced "
            f"({error})."
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        run(sockets=[listening])
    except (KeyboardInterrupt, SystemExit):
        pass  # the usual end
    finally:
        stop.set()
        listening.close()
        discovery.withdraw()


def _runner(run_index: RunIndex, address: str | None, policy: Policy) -> Callable[..., None]:
    """Return a function that serves on given sockets until a signal."""
    # The framework reads this directory when it is loaded (by default the working directory) and
    # stores nothing here. The random name prevents other users from placing files in it.
    os.environ["NICEGUI_STORAGE_PATH"] = str(
        settings.temporary_directory() / f"syncline-{secrets.token_hex(16)}"
    )
    for name, level in (("nicegui", logging.ERROR), ("uvicorn", logging.CRITICAL)):
        logging.getLogger(name).setLevel(level)
    run: Callable[..., None] = (
        importlib.import_module("syncline.dashboard.application")
        .server(run_index, address, policy)
        .run
    )
    return run


def _allow_many_files() -> None:
    """Raise the limit of open files as far as allowed: each visitor and record needs some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # the reported hard limit may be refused
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (hard if soft != resource.RLIM_INFINITY else soft, hard)
        )


def listen(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens on the port, or on the first free port from the default. Raises
    like `serve`.
    """
    candidates = range(DEFAULT_PORT, DEFAULT_PORT + TRIED_PORTS) if port is None else (port,)
    for candidate in candidates:
        try:
            family, *_, address = socket.getaddrinfo(
                host, candidate, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            return socket.create_server(
                address, family=family, backlog=128, dualstack_ipv6=family == socket.AF_INET6
            )
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    if port is None:
        raise PortTakenError(
            f"All ports from {DEFAULT_PORT} to {DEFAULT_PORT + TRIED_PORTS - 1} are in use: "
            "specify a free one with --port."
        )
    raise PortTakenError(
        f"Port {port} of {host} is in use by another program: specify another one with --port, or "
        "omit --port."
    )


def shared_or_new_token(warn: Callable[[str], None]) -> str:
    """Return the shared token of this user's dashboards on this machine; if it cannot be stored, a
    token for this process only.
    """
    fresh = new_token()
    try:
        return discovery.shared_token(fresh)
    except OSError as error:
        warn(f"The token cannot be stored ({error}): the next dashboard will have another URL.")
        return fresh


def own_addresses() -> list[str]:
    """Return the names and addresses of this machine."""
    addresses = [entry.address for entries in psutil.net_if_addrs().values() for entry in entries]
    return [*addresses, socket.gethostname(), socket.getfqdn()]


def url_host(host: str) -> str:
    """Return the host part of the URL for a host to listen on."""
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


MAX_MESSAGES = 20
"""Maximum messages within the window."""
WINDOW_S = 60.0
MAX_TEXT_LENGTH = 10_000
"""Maximum characters of a message."""
_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def install_logging() -> None:
    """Print warnings and errors of this process as plain, rate-limited lines.

    Messages contain untrusted input of visitors and records, mostly in tracebacks.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter("syncline: %(message)s"))
    handler.addFilter(RateLimitFilter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)


class PlainFormatter(logging.Formatter):
    """Formatter that replaces control characters, which a terminal would obey."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message with its traceback."""
        text = super().format(record)
        if len(text) > MAX_TEXT_LENGTH:
            omitted = f"… {len(text) - MAX_TEXT_LENGTH} characters omitted …"
            text = f"{text[: MAX_TEXT_LENGTH // 2]}\n{omitted}\n{text[-MAX_TEXT_LENGTH // 2 :]}"
        return _UNFIT.sub("\ufffd", text)


class RateLimitFilter(logging.Filter):
    """Rate limit of messages; the first message of the next window gives the number dropped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._began = clock()
        self._passed = 0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the message is printed."""
        now = self._clock()
        if now - self._began >= WINDOW_S:
            self._began, self._passed = now, 0
        self._passed += 1
        if self._passed > MAX_MESSAGES:
            self._left_out += 1
            return False
        if self._left_out:
            record.msg, record.args = (
                f"{record.getMessage()}\n({self._left_out} earlier messages were dropped)",
                (),
            )
            self._left_out = 0
        return True
