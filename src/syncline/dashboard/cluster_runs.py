from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import syncline
from syncline import settings
from syncline.core import api
from syncline.core.control import ActionFailed, ProgramUnreachable
from syncline.core.lifecycle import ensure_engine
from syncline.dashboard.run_control import Ask
from syncline.exceptions import GetTimeoutError, RayActorError, RayTaskError
from syncline.train.controller.run_actor import NAMESPACE, run_actor_name
from syncline.train.storage.context import StorageContext

logger = logging.getLogger("syncline")


def asking(path: str, address: str | None) -> Ask | None:
    """Return a function that sends requests to a run on a cluster; None if no cluster is reachable
    or the run is not running on it.

    Connects this process to the cluster at `address`, by default that of the environment, unless it
    is connected already.
    """
    if not _connected(address):
        return None
    parent, _, name = path.rstrip("/").rpartition("/")
    try:
        actor = api.get_actor(run_actor_name(StorageContext(parent or "/", name)), NAMESPACE)
    except ValueError:
        return None

    def ask(action: str, arguments: Mapping[str, Any], timeout_s: float) -> Any:
        try:
            return api.get(actor.ask.remote(action, dict(arguments)), timeout=timeout_s)
        except RayTaskError as error:
            raise ActionFailed(str(error.cause or error), type(error.cause).__name__) from error
        except RayActorError as error:
            raise ProgramUnreachable(
                f"The run {name!r} is no longer running on the cluster: {error}"
            ) from error
        except GetTimeoutError:
            raise ProgramUnreachable(
                f"The run {name!r} did not answer within {timeout_s:g} s: its controller is busy or "
                "disconnected."
            ) from None

    return ask


def _connected(address: str | None) -> bool:
    if not api.is_initialized():
        address = address or settings.address()
        if address is None:
            return False
        try:
            syncline.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (
            ConnectionError,
            TimeoutError,
            ModuleNotFoundError,
            RuntimeError,
            ValueError,
            OSError,
        ) as error:
            logger.warning(
                "Cannot reach the cluster at %s, so its runs cannot be inspected: %s",
                address,
                error,
            )
            return False
    return ensure_engine().outlives_driver
