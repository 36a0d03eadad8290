"""Start of the fork server as soon as a program imports serve.

The import of this module starts it; see `core.embedded.early_start`.
"""

from __future__ import annotations

from syncline.core.embedded import early_start

MODULES = (
    "syncline.serve.controller.controller_thread",
    "syncline.serve.proxy.process",
    "starlette.requests",
    "syncline.serve.replica.http_calls",
    "websockets.server",
    "syncline.serve.replica.process",
)
"""Modules of serve's processes, in the order in which they are needed.

The imports of the last module are also listed, because processes may start between two imports.
"""


def start() -> None:
    """Start a fork server that imports the modules of serve's processes."""
    early_start.start(*MODULES)


start()
