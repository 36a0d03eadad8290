"""Questions to a run on a cluster, through the actor that its controller is. Loaded only where a
run is not this machine's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import syncline
from syncline import settings
from syncline.core import api
from syncline.core.control import ActionFailed, NobodyAnswers
from syncline.core.lifecycle import ensure_engine
from syncline.dashboard.live import Ask
from syncline.exceptions import GetTimeoutError, RayActorError, RayTaskError
from syncline.train.controller.run_actor import NAMESPACE, run_actor_name
from syncline.train.storage import StorageContext

logger = logging.getLogger("syncline")


def asking(path: str, address: str | None) -> Ask | None:
    """What asks the run in a directory, or at a URI; None where no cluster can be reached, or the
    run is not under way on it.

    A process that is connected to nothing yet is connected to the cluster at `address`, or at that
    of the environment, and stays so.
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
            raise NobodyAnswers(
                f"the run {name!r} is not under way on the cluster any more: {error}"
            ) from error
        except GetTimeoutError:
            raise NobodyAnswers(
                f"the run {name!r} did not answer within {timeout_s:g} s: its controller is very busy, or cut off"
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
                "the cluster at %s cannot be reached, so runs on it cannot be looked into: %s",
                address,
                error,
            )
            return False
    return ensure_engine().outlives_driver
