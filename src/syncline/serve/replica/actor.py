"""`ServeReplica`: the actor of a replica.

The controller imports this module, but not the modules of the process behind it.
"""

from __future__ import annotations

import importlib
import os
from typing import Protocol, cast

from syncline.serve.replica.replica_config import ReplicaConfig

PROCESS = "syncline.serve.replica.process"


class _Process(Protocol):
    """The module `process`."""

    def run(self, config: ReplicaConfig) -> None:
        """Serve until the controller has drained the replica."""


class ServeReplica:
    """The actor of a replica."""

    def __init__(self) -> None:
        """Do nothing: `run` constructs the user's object."""

    def run(self, config: ReplicaConfig) -> None:
        """Serve in the main thread until the controller has drained the replica.

        Also returns if the user's constructor failed; the controller has been notified.
        """
        cast(_Process, importlib.import_module(PROCESS)).run(config)

    def ping(self) -> int:
        """Return the process id; the process has started."""
        return os.getpid()
