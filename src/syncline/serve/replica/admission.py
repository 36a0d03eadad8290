"""`Admission`: the limit of ongoing requests of a replica. Pure.

A caller whose call is refused (BUSY) waits. As soon as a slot is free, all waiting callers are
notified (FREE), in the order in which they began to wait. Some may have no call any more, so
notifying only one of them could leave the slot empty.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from syncline.records import dataclass

Caller = TypeVar("Caller", bound=Hashable)
"""A connection of a caller."""


@dataclass(frozen=True, kw_only=True)
class AdmissionStatistics:
    """Counts of an admission."""

    ongoing: int
    limit: int
    waiting: int
    """Callers to notify when a slot is free."""
    admitted: int
    refused: int
    is_draining: bool


class Admission(Generic[Caller]):
    """Counts the ongoing requests and remembers which callers were refused."""

    def __init__(self, max_ongoing_requests: int) -> None:
        self._limit = _checked(max_ongoing_requests)
        self._waiting: dict[Caller, None] = {}
        self._is_draining = False
        self._admitted = 0
        self._refused = 0
        self._capacity = self._limit  # zero while the replica drains
        self.ongoing = 0
        """Requests that were admitted and not released."""

    def admit(self, caller: Caller) -> bool:
        """Take a slot for a call of `caller`; return False if the caller has to wait."""
        if self.ongoing < self._capacity:
            self.ongoing += 1
            self._admitted += 1
            return True
        self._refused += 1
        if not self._is_draining:
            self._waiting[caller] = None
        return False

    def release(self) -> tuple[Caller, ...]:
        """Give a slot back; return the callers to tell that slots are free."""
        assert self.ongoing > 0, "more requests were released than admitted"
        self.ongoing -= 1
        return self._told() if self._waiting else ()

    def resize(self, max_ongoing_requests: int) -> tuple[Caller, ...]:
        """Change the limit; return the callers to tell that slots are free."""
        self._limit = _checked(max_ongoing_requests)
        if not self._is_draining:
            self._capacity = self._limit
        return self._told()

    def drain(self) -> None:
        """Refuse all further calls. Callers are not notified: they send to other replicas."""
        self._is_draining = True
        self._capacity = 0
        self._waiting.clear()

    def forget(self, caller: Caller) -> None:
        """Remove a caller whose connection has ended. Its ongoing calls are released as usual."""
        self._waiting.pop(caller, None)

    @property
    def is_draining(self) -> bool:
        """True after `drain`."""
        return self._is_draining

    def statistics(self) -> AdmissionStatistics:
        """Return the current counts."""
        return AdmissionStatistics(
            ongoing=self.ongoing,
            limit=self._limit,
            waiting=len(self._waiting),
            admitted=self._admitted,
            refused=self._refused,
            is_draining=self._is_draining,
        )

    def _told(self) -> tuple[Caller, ...]:
        if self.ongoing >= self._capacity:
            return ()
        callers = tuple(self._waiting)
        self._waiting.clear()
        return callers


def _checked(limit: int) -> int:
    if limit < 1:
        raise ValueError(f"max_ongoing_requests={limit} is impossible: give at least 1")
    return limit
