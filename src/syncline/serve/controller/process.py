"""`ServeController`: the detached actor of the controller, and functions that find and end it."""

from __future__ import annotations

import importlib
from typing import Protocol

from syncline.core.api import ActorHandle, get, get_actor, kill, remote
from syncline.core.resources import HEAD_NODE
from syncline.exceptions import RayError
from syncline.serve.wire.routes import Address

CONTROLLER_NAME = "SERVE_CONTROLLER"
NAMESPACE = "serve"
CLOSE_S = 10.0
"""Seconds to wait for the controller's end."""
_RUNNER = "syncline.serve.controller.controller_thread"
_OPTIONS = {
    "name": CONTROLLER_NAME,
    "namespace": NAMESPACE,
    "lifetime": "detached",
    "get_if_exists": True,
    "max_restarts": -1,
    "max_task_retries": -1,
    "num_cpus": 0,
    "resources": {HEAD_NODE: 0.001},  # on the node whose loss ends the cluster
}


class ServeController:
    """Runs the controller's event loop in a thread.

    Its constructor starts to listen and, after a restart, recovers from the snapshot; so the first
    call returns once the controller can be reached.
    """

    def __init__(self) -> None:
        # Programs import this module, but not the modules of the processes behind it.
        self._runner: ControllerRunner = importlib.import_module(_RUNNER).ControllerThread()
        self._runner.start()

    def address(self) -> tuple[Address, bytes]:
        """Return the address of the controller and the key of the session."""
        return self._runner.address()

    def ping(self) -> None:
        """Return immediately; fails if the controller's loop has ended."""
        self._runner.address()

    def close(self) -> None:
        """Stop listening, and remove the files of the session."""
        self._runner.close()


class ControllerRunner(Protocol):
    """Interface of `controller_thread.ControllerThread`."""

    def start(self) -> None:
        """Start, and wait until the controller listens."""

    def address(self) -> tuple[Address, bytes]:
        """Return the address of the controller and the key of the session."""

    def close(self) -> None:
        """Stop, and remove the files."""


def start_controller() -> ActorHandle:
    """Return the handle of the controller; start it if it is not running."""
    return remote(ServeController).options(**_OPTIONS).remote()


def find_controller() -> ActorHandle | None:
    """Return the handle of the running controller, or None."""
    try:
        return get_actor(CONTROLLER_NAME, NAMESPACE)
    except ValueError:
        return None


def stop_controller(controller: ActorHandle) -> None:
    """Stop the controller; send it `messages.Shutdown` first.

    Does nothing if it has already ended.
    """
    try:
        get(controller.close.remote(), timeout=CLOSE_S)
    except (RayError, TimeoutError):
        pass
    kill(controller)
