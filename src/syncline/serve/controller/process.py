"""`ServeController`: the detached actor of the controller, and functions that find and end it."""

from __future__ import annotations

from syncline.core.api import ActorHandle, get_actor, remote
from syncline.serve.wire.routes import Address

CONTROLLER_NAME = "SERVE_CONTROLLER"
NAMESPACE = "serve"


class ServeController:
    """Runs the controller's event loop in a thread.

    Its constructor starts to listen and, after a restart, recovers from the snapshot; so the first
    call returns once the controller can be reached.
    """

    def __init__(self) -> None:
        raise NotImplementedError

    def address(self) -> tuple[Address, bytes]:
        """Return where the controller listens, and the key of the session."""
        raise NotImplementedError

    def ping(self) -> None:
        """Return at once; fails if the controller's loop has ended."""
        raise NotImplementedError


def start_controller() -> ActorHandle:
    """Return the handle of the controller, which is started if it does not run."""
    return remote(ServeController).options(**_OPTIONS).remote()


def find_controller() -> ActorHandle | None:
    """Return the handle of the running controller, or None."""
    try:
        return get_actor(CONTROLLER_NAME, NAMESPACE)
    except ValueError:
        return None


def stop_controller(controller: ActorHandle) -> None:
    """Kill the controller; send it `messages.Shutdown` before."""
    raise NotImplementedError


_OPTIONS = {
    "name": CONTROLLER_NAME,
    "namespace": NAMESPACE,
    "lifetime": "detached",
    "get_if_exists": True,
    "max_restarts": -1,
    "max_task_retries": -1,
    "num_cpus": 0,
}
