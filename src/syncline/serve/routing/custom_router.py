"""`CustomRouter`: the router of a deployment whose replicas a custom request router chooses. Pure.

Every call waits in the queue until the user's class has chosen for it. `Ask` instructions name the
calls that could be sent; their answers come back as `chosen` or `choice_failed`. As long as no
replica has a free slot, nothing is asked. A call for which the class chose nothing, or only full
replicas, is held until anything changes (an answer, a replica, new statistics) or a pause is over,
which doubles up to a limit while nothing changes.

A call that is being asked about does not count as queued while there is a free slot for it; it is
refused with BackPressureError if it has to be held in a full queue.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Protocol

from syncline.records import dataclass
from syncline.serve.exceptions import DeploymentUnavailableError
from syncline.serve.routing.router import (
    Ask,
    Call,
    DeploymentRouter,
    Fail,
    Instruction,
    RoutedReplica,
    Send,
)
from syncline.serve.wire.routes import DeploymentRoute


@dataclass(frozen=True, kw_only=True)
class AskingPolicy:
    """How a request router is asked."""

    is_fifo: bool = False
    """True to ask about the first waiting call only, one at a time."""
    most_asks: int = 50
    """Questions at the same time."""
    initial_backoff_s: float = 0.025
    """First pause of a call that is held while nothing changes."""
    backoff_multiplier: float = 2.0
    max_backoff_s: float = 0.5


class RouterObserver(Protocol):
    """Hears what happens to calls."""

    def sent(self, call: Call, replica_id: str) -> None:
        """Record that a call was sent to a replica."""

    def completed(self, call: Call, replica_id: str) -> None:
        """Record that a replica answered a call."""

    def lost(self, replica_id: str) -> None:
        """Record that a replica died."""


class CustomRouter(DeploymentRouter):
    """Router of one deployment in one caller, with a custom request router."""

    def __init__(
        self,
        route: DeploymentRoute,
        *,
        policy: AskingPolicy,
        observer: RouterObserver,
        seed: int | None = None,
    ) -> None:
        super().__init__(route, seed=seed)
        self._policy = policy
        self._observer = observer
        self._to_ask: OrderedDict[int, None] = OrderedDict()  # in the order of arrival
        self._asking: dict[int, int] = {}  # call id -> number of changes when it was asked
        self._held: dict[int, None] = {}
        self._changes = 0
        self._pauses = 0  # since the last change
        self._retry_at: float | None = None
        self.members_version = 0
        """Grows whenever `members` or the route changes."""

    def members(self) -> list[str]:
        """Return the replicas that take calls."""
        return [id for id, replica in self._replicas.items() if not replica.is_removed]

    def count(self, replica_id: str) -> int:
        """Return the number of calls in flight of a replica; also from other threads."""
        replica = self._replicas.get(replica_id)
        return 0 if replica is None else len(replica.in_flight)

    # -- choices

    def chosen(
        self, call_id: int, groups: Sequence[Sequence[str]], now: float
    ) -> list[Instruction]:
        """Send a call to the first free replica of the groups, or hold it."""
        asked_at = self._asking.pop(call_id, None)
        call = self._queue.get(call_id)
        if asked_at is None or call is None:  # it was cancelled
            return self._dispatch(now)
        if self._policy.is_fifo and next(iter(self._queue)) != call_id:
            self._ask_again([call_id])  # an earlier call came back
            return self._dispatch(now)
        replica = self._first_free(groups)
        if replica is not None:
            del self._queue[call_id]
            self._pauses = 0
            return [self._send(call, replica), *self._dispatch(now)]
        if asked_at != self._changes:
            self._ask_again([call_id])
            return self._dispatch(now)
        return self._hold(call, now)

    def choice_failed(self, call_id: int, error: Exception, now: float) -> list[Instruction]:
        """End a call whose choice raised an error."""
        self._asking.pop(call_id, None)
        call = self._queue.pop(call_id, None)
        failed: list[Instruction] = [] if call is None else [Fail(call, error)]
        return [*failed, *self._dispatch(now)]

    # -- events

    def submit(self, call: Call, now: float) -> list[Instruction]:
        """Ask about a call, queue it, or refuse it."""
        if call.pinned:
            return self._submit_pinned(call)
        route = self._route
        if route.unavailable is not None and not self._free:
            return [Fail(call, DeploymentUnavailableError(route.id, route.unavailable))]
        if route.max_queued_requests >= 0:
            queued = self._held_up(1)
            if queued > route.max_queued_requests:
                return [self._refuse(call, queued - 1)]
        self._queue[call.call_id] = call
        self._to_ask[call.call_id] = None
        return self._dispatch(now)

    def answered(self, replica_id: str, call_id: int, now: float) -> list[Instruction]:
        """Record the end of a call; ask about waiting ones."""
        replica = self._replicas.get(replica_id)
        call = None if replica is None else replica.in_flight.get(call_id)
        if call is not None:
            self._observer.completed(call, replica_id)
        self._note_change()
        return super().answered(replica_id, call_id, now)

    def free(self, replica_id: str, now: float) -> list[Instruction]:
        """Record that a busy replica has free slots again."""
        self._note_change()
        return super().free(replica_id, now)

    def cancelled(self, call: Call) -> list[Instruction]:
        """Drop a waiting call, or cancel it at its replica."""
        instructions = super().cancelled(call)
        self._forget(call.call_id)
        return [*instructions, *self._dispatch(0.0)]

    def replica_added(self, replica_id: str, now: float) -> list[Instruction]:
        """Add a connected replica."""
        self._note_change(of_members=True)
        return super().replica_added(replica_id, now)

    def replica_removed(self, replica_id: str, now: float) -> list[Instruction]:
        """Send no more calls to a replica."""
        self._note_change(of_members=True)
        return super().replica_removed(replica_id, now)

    def replica_lost(
        self, replica_id: str, began: Iterable[int] | None, now: float
    ) -> list[Instruction]:
        """Handle the death of a replica."""
        if replica_id in self._replicas:
            self._observer.lost(replica_id)
        self._note_change(of_members=True)
        return super().replica_lost(replica_id, began, now)

    def update(self, route: DeploymentRoute, now: float) -> list[Instruction]:
        """Apply new limits and statistics of replicas."""
        self._note_change(of_members=True)
        return super().update(route, now)

    def take_over(self, other: DeploymentRouter) -> None:
        """Ask about the calls that wait in another router."""
        super().take_over(other)
        self._to_ask = OrderedDict.fromkeys(sorted(self._queue))

    # -- time

    def next_moment(self) -> float | None:
        """Return the end of the pause of held calls; None if no call is held."""
        moments = (super().next_moment(), self._retry_at if self._held else None)
        return min((moment for moment in moments if moment is not None), default=None)

    def tick(self, now: float) -> list[Instruction]:
        """Ask about held calls again."""
        if self._retry_at is not None and self._retry_at <= now:
            self._release_held()
            self._pauses += 1
        return super().tick(now)

    # -- internals

    def _dispatch(self, now: float) -> list[Instruction]:
        """Send calls to the replicas that they wait for, and ask about others."""
        instructions = self._send_expected() if self._waiting else []
        if not self._free:
            return instructions
        if self._policy.is_fifo:
            head = next(iter(self._queue), None)
            if head is not None and head in self._to_ask and not self._asking:
                instructions.append(self._ask(head))
            return instructions
        most = min(self._policy.most_asks, self._free_slots())
        while self._to_ask and len(self._asking) < most:
            instructions.append(self._ask(next(iter(self._to_ask))))
        return instructions

    def _ask(self, call_id: int) -> Ask:
        del self._to_ask[call_id]
        self._asking[call_id] = self._changes
        return Ask(self._queue[call_id])

    def _ask_again(self, call_ids: Iterable[int]) -> None:
        self._to_ask = OrderedDict.fromkeys(sorted([*call_ids, *self._to_ask]))

    def _hold(self, call: Call, now: float) -> list[Instruction]:
        self._held[call.call_id] = None
        limit = self._route.max_queued_requests
        queued = self._held_up(0)
        if 0 <= limit < queued:
            del self._held[call.call_id], self._queue[call.call_id]
            return [self._refuse(call, queued - 1), *self._dispatch(now)]
        if self._retry_at is None:
            policy = self._policy
            pause_s = policy.initial_backoff_s * policy.backoff_multiplier ** min(self._pauses, 60)
            self._retry_at = now + min(pause_s, policy.max_backoff_s)
        return self._dispatch(now)

    def _held_up(self, more: int) -> int:
        """Return the number of calls without a free slot, after `more` were submitted."""
        undecided = len(self._to_ask) + len(self._asking) + more
        return len(self._waiting) + len(self._held) + max(0, undecided - self._free_slots())

    def _free_slots(self) -> int:
        most = self._route.max_ongoing_requests
        return sum(most - len(replica.in_flight) for replica in self._free)

    def _first_free(self, groups: Sequence[Sequence[str]]) -> RoutedReplica | None:
        for group in groups:
            replicas = [self._replicas.get(id) for id in group]
            free = [each for each in replicas if each is not None and each.free_index >= 0]
            if free:
                return min(free, key=lambda each: len(each.in_flight))
        return None

    def _send(self, call: Call, replica: RoutedReplica) -> Send:
        self._observer.sent(call, replica.id)
        return super()._send(call, replica)

    def _note_change(self, *, of_members: bool = False) -> None:
        self._changes += 1
        self._pauses = 0
        self.members_version += of_members
        self._release_held()

    def _release_held(self) -> None:
        if self._held:
            self._ask_again(self._held)
            self._held.clear()
        self._retry_at = None

    def _requeue(self, call: Call) -> None:
        super()._requeue(call)
        self._ask_again([call.call_id])

    def _forget(self, call_id: int) -> None:
        self._to_ask.pop(call_id, None)
        self._held.pop(call_id, None)
        self._asking.pop(call_id, None)

    def _fail_waiting(self, error: Exception) -> list[Instruction]:
        failed = super()._fail_waiting(error)
        self._to_ask.clear()
        self._held.clear()
        self._asking.clear()
        return failed
