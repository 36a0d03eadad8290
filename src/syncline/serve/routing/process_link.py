"""The link that handles of this process use.

A replica sets its own. Any other process connects to the controller of its engine on first use.
"""

from __future__ import annotations

import os
import secrets
import threading
from functools import partial

from syncline.core import engine as engines
from syncline.core.api import ensure_engine, get
from syncline.core.embedded.shared_reactor import Waiter
from syncline.core.lifecycle import shutdown_hooks
from syncline.serve.controller.process import find_controller
from syncline.serve.exceptions import RayServeException
from syncline.serve.routing.link import TABLE_S, Link
from syncline.serve.routing.thread_link import ThreadLink
from syncline.serve.wire import shared_values
from syncline.serve.wire.connection import Hello


class _ProcessLink:
    """The link of this process and its owner."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.link: Link | None = None
        self.owner: tuple[int, object] | None = None
        """Process and engine for which the link was made: a fork or a new engine needs another."""


_current = _ProcessLink()
local_links: dict[str, Link] = {}
"""Links of applications that run in this process, by name; see `local`."""


def link_to(app_name: str) -> Link:
    """Return the link to the replicas of an application.

    Raises RayServeException if serve is not running.
    """
    return local_links.get(app_name) or process_link()


def process_link() -> Link:
    """Return the link of this process.

    Raises RayServeException if serve is not running.
    """
    if _current.link is not None and _current.owner == (os.getpid(), engines.current):
        return _current.link
    with _current.lock:
        owner = (os.getpid(), ensure_engine())
        if _current.link is None or _current.owner != owner:
            close_process_link()
            _set(_connect(), owner)
        assert _current.link is not None
        return _current.link


def wait_for_table(version: int) -> None:
    """Wait until the link of this program, if it has one, knows a version of the routing table.

    Without it, calls right after a deployment might not know its replicas yet.
    """
    link = _current.link
    if isinstance(link, ThreadLink) and _current.owner == (os.getpid(), engines.current):
        waiter = Waiter()
        link.run(partial(link.when_updated, version, waiter.settle))
        link.wait(waiter, TABLE_S)


def set_process_link(link: Link) -> None:
    """Let the handles of this process use `link`."""
    _set(link, (os.getpid(), ensure_engine()))


def close_process_link() -> None:
    """Close the link of this process, if it has one; unfinished calls fail."""
    link, _current.link = _current.link, None
    if link is not None and _current.owner is not None and _current.owner[0] == os.getpid():
        link.close(RayServeException("serve was shut down, or syncline was"))


def _set(link: Link, owner: tuple[int, object]) -> None:
    shared_values.use(ensure_engine().shared_directory)
    _current.link, _current.owner = link, owner


def _connect() -> Link:
    controller = find_controller()
    if controller is None:
        raise RayServeException("serve is not running: call `serve.run` or `serve.start` first")
    address, key = get(controller.address.remote())
    link = ThreadLink(
        address,
        node_id=ensure_engine().runtime_info().node_id,
        hello=Hello(role="caller", id=secrets.token_hex(8), pid=os.getpid()),
        key=key,
    )
    link.start()
    return link


shutdown_hooks.append(close_process_link)
