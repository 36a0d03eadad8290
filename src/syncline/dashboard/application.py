"""The web application: the framework, set up for the dashboard. The only module besides pages and
looks that knows the framework.
"""

from __future__ import annotations

import uvicorn
from fastapi import FastAPI
from nicegui import core, ui

from syncline.dashboard.catalogue import Catalogue
from syncline.dashboard.connections import PatientProtocol
from syncline.dashboard.pages.routes import Shown, register
from syncline.dashboard.peers import is_stranger
from syncline.dashboard.security import Guard, Policy

FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#1f5fd0"/>'
    '<path d="M6 20h5l4-10 4 13 3-7h4" fill="none" stroke="#fff" stroke-width="2.6" stroke-linecap="round" stroke-linejoin="round"/></svg>'
)

RECONNECT_S = 20.0
"""So long a page that lost its connection may find back to what it showed. Where workers train,
both ends may be starved for seconds.
"""


def server(catalogue: Catalogue, address: str | None, policy: Policy) -> uvicorn.Server:
    """The web server with the guarded application, quiet. Once for a process."""
    config = uvicorn.Config(
        Guard(application(catalogue, address), policy, is_stranger=is_stranger),
        http=PatientProtocol,
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # whoever connects is who asks
        timeout_graceful_shutdown=0,  # open pages do not hold up the end
        ws_max_size=1_000_000,
    )
    return uvicorn.Server(config)


def application(catalogue: Catalogue, address: str | None) -> FastAPI:
    """The application, unguarded. Once for a process."""
    outer = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    register(Shown(catalogue=catalogue, address=address))
    # Pages are not packed here: the guard has to read them.
    ui.run_with(
        outer,
        title="syncline",
        favicon=FAVICON,
        dark=None,
        language="en-US",
        show_welcome_message=False,
        gzip_middleware_factory=None,
        tailwind=False,  # compiling its classes in the browser holds up every page
        reconnect_timeout=RECONNECT_S,
    )
    # Pages come through the guard as websockets alone: the other way is requests that change
    # something, which it has none of otherwise.
    core.app.config.socket_io_js_transports = ["websocket"]
    core.sio.eio.transports = ["websocket"]
    core.sio.on("log", _not_logged)
    return outer


def _not_logged(socket_id: str, message: object) -> None:
    """What a page says for the log is a visitor's word."""
