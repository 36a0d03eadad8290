"""How a consumer reaches its coordinator: an actor's handle, or in local mode the coordinator
itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakValueDictionary

from syncline.core import api
from syncline.data.split.coordinator import Coordinator
from syncline.data.split.messages import CoordinatorDiedError
from syncline.exceptions import ActorDiedError


class Link(Protocol):
    """Calls methods of a coordinator. Picklable; the coordinator lives as long as there is a link
    to it.
    """

    def submit(self, method: str, *args: Any) -> Callable[[], Any]:
        """Call now, and return what waits for the result (once)."""
        ...

    def call(self, method: str, *args: Any) -> Any:
        """Call and wait."""
        ...

    def tell(self, method: str, *args: Any) -> None:
        """Call without waiting."""
        ...


class ActorLink:
    """The coordinator is an actor."""

    def __init__(self, actor: api.ActorHandle) -> None:
        self._actor = actor

    def submit(self, method: str, *args: Any) -> Callable[[], Any]:
        ref = getattr(self._actor, method).remote(*args)

        def wait() -> Any:
            try:
                return api.get(ref)
            except ActorDiedError as error:
                raise _coordinator_died(error) from error

        return wait

    def call(self, method: str, *args: Any) -> Any:
        return self.submit(method, *args)()

    def tell(self, method: str, *args: Any) -> None:
        # A loop may be dropped when the engine has ended, which a call would start again.
        if api.is_initialized():
            self.submit(method, *args)


class LocalLink:
    """The coordinator is an object of this process; copies of the link, however they came about,
    lead to the same one.
    """

    _coordinators: WeakValueDictionary[str, Coordinator] = WeakValueDictionary()

    def __init__(self, coordinator: Coordinator) -> None:
        self._key = secrets.token_hex(8)
        self._coordinator = coordinator
        self._coordinators[self._key] = coordinator

    def submit(self, method: str, *args: Any) -> Callable[[], Any]:
        return lambda: self.call(method, *args)

    def call(self, method: str, *args: Any) -> Any:
        return getattr(self._coordinator, method)(*args)

    def tell(self, method: str, *args: Any) -> None:
        self.call(method, *args)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_local_link, (self._key,))


def _coordinator_died(error: ActorDiedError) -> BaseException:
    if (
        error.exit_cause is None or error.pid is None
    ):  # it was not the process: it has never begun, say
        return error
    return CoordinatorDiedError(
        f"the process that reads the dataset for all ranks (pid {error.pid}) {error.exit_cause}, so the pass ends for all of them: split "
        "the dataset again, and continue all ranks from their last checkpoint, as a trainer with FailureConfig(max_failures=1) does"
    )


def _local_link(key: str) -> LocalLink:
    link = LocalLink.__new__(LocalLink)
    link._key, link._coordinator = key, LocalLink._coordinators[key]
    return link
