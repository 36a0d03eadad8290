"""Start of an engine: the process of the fork server first, then the modules of the driver.

Both import about as much, so that they do it at the same time. `early_start` may have started it
before.
"""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from syncline.core import thread_limits
from syncline.core.config import EngineConfig
from syncline.core.embedded import early_start
from syncline.core.embedded.fork_server_process import ForkServerProcess
from syncline.core.engine import Engine

_DRIVER = "syncline.core.embedded.start"


class _Driver(Protocol):
    """The module `start`."""

    def start_engine(self, config: EngineConfig, fork_server: ForkServerProcess) -> Engine:
        """Start an engine on this machine."""


def start_engine(config: EngineConfig) -> Engine:
    """Start an engine on this machine."""
    thread_limits.lift()  # of work that ran in this process; workers get limits of their own
    fork_server = early_start.take() or ForkServerProcess.start()
    try:
        driver = cast(_Driver, importlib.import_module(_DRIVER))
        return driver.start_engine(config, fork_server)
    except BaseException:
        fork_server.close()
        raise
