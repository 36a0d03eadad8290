"""The web application: the framework configured for the dashboard, behind the request guard.

Only this module, the pages and the widgets know the web framework.
"""

from __future__ import annotations

import asyncio
from typing import cast

import uvicorn
from fastapi import FastAPI
from nicegui import core, ui
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from syncline.dashboard.connections import is_other_user
from syncline.dashboard.pages.routes import register
from syncline.dashboard.run_index import RunIndex
from syncline.dashboard.security import Guard, Policy

FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">'
    '<rect width="32" height="32" rx="7" fill="#1f5fd0"/>'
    '<path d="M6 20h5l4-10 4 13 3-7h4" fill="none" stroke="#fff" stroke-width="2.6" '
    'stroke-linecap="round" stroke-linejoin="round"/></svg>'
)

RECONNECT_S = 20.0
"""Seconds in which a disconnected page can resume its session. Training may starve both ends for
seconds.
"""


def server(run_index: RunIndex, address: str | None, policy: Policy) -> uvicorn.Server:
    """Return the web server with the guarded application. Call it once per process."""
    config = uvicorn.Config(
        Guard(application(run_index, address), policy, is_other_user=is_other_user),
        http=RequestTimeoutProtocol,
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # use the address of the connection itself
        timeout_graceful_shutdown=0,  # do not wait for open pages
        ws_max_size=1_000_000,
    )
    return uvicorn.Server(config)


def application(run_index: RunIndex, address: str | None) -> FastAPI:
    """Return the unguarded application. Call it once per process."""
    outer = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    register(run_index, address)
    # No compression here: the guard reads the pages.
    ui.run_with(
        outer,
        title="syncline",
        favicon=FAVICON,
        dark=None,
        language="en-US",
        show_welcome_message=False,
        gzip_middleware_factory=None,
        tailwind=False,  # compiling its classes in the browser delays every page
        reconnect_timeout=RECONNECT_S,
    )
    # The guard accepts websockets only: the alternative transport uses POST requests.
    core.app.config.socket_io_js_transports = ["websocket"]
    core.sio.eio.transports = ["websocket"]
    core.sio.on("log", _not_logged)
    return outer


def _not_logged(socket_id: str, message: object) -> None:
    """Ignore log messages of pages: they are untrusted input."""


REQUEST_S = 10.0
"""Maximum seconds until a complete request has arrived; twice as many after an answer."""


class RequestTimeoutProtocol(HttpToolsProtocol):
    """HTTP protocol that closes connections without a pending answer on which no request arrives.

    The server itself waits forever, so clients without a token could exhaust the file descriptors.
    """

    _answered: object = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout of a new connection."""
        super().connection_made(cast(asyncio.Transport, transport))
        self._watch()

    def _watch(self) -> None:
        self.loop.call_later(REQUEST_S, self._look)

    def _look(self) -> None:
        # A websocket has replaced the protocol.
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if not is_answering and self.cycle is self._answered:
            self.transport.close()
            return
        self._answered = self.cycle
        self._watch()
