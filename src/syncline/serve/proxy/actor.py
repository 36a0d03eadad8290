"""`ServeProxy`: the actor of a proxy.

The controller imports this module, but not the modules of the process behind it.
"""

from __future__ import annotations

import importlib
import os
from typing import Protocol, cast

from syncline.serve.proxy.proxy_config import ProxyConfig

PROCESS = "syncline.serve.proxy.process"


class _Process(Protocol):
    """The module `process`."""

    def run(self, config: ProxyConfig) -> None:
        """Serve until the controller has drained the proxy."""


class ServeProxy:
    """The actor of a proxy."""

    def __init__(self) -> None:
        """Do nothing: `run` starts the proxy."""

    def run(self, config: ProxyConfig) -> None:
        """Serve in the main thread until the controller has drained the proxy.

        Also returns if the proxy cannot listen; the controller has been notified.
        """
        cast(_Process, importlib.import_module(PROCESS)).run(config)

    def ping(self) -> int:
        """Return the process id; the process has started."""
        return os.getpid()
