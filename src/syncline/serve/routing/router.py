"""`DeploymentRouter`: assigns the calls of one deployment to replicas. Pure: no clock, no sockets.

A caller (proxy, program or replica) has one router for each deployment that it calls. Calls wait in
one queue, first come, first served. A call goes to the replica with the fewest calls of this caller
in flight, among the replicas with a free slot (of many, the better of two random ones). A replica
whose slots other callers hold answers BUSY: the call returns to the head of the queue, and the
replica gets no more calls until it sends FREE, so no caller polls.

A call with a model id or session id prefers the replica that has the model or session, and waits
for it up to `AFFINITY_S`. Calls of a replica that died are sent again if they had not begun, or if
they may be repeated; a call that was running on two replicas when they died is not tried again.
"""

from __future__ import annotations

import hashlib
import random
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import field
from typing import NamedTuple

from syncline.records import dataclass
from syncline.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
)
from syncline.serve.request_router import PendingRequest
from syncline.serve.wire.routes import DeploymentId, DeploymentRoute

AFFINITY_S = 1.0
"""Seconds that a call waits for the replica that has its model or session."""
MOST_DEATHS = 2
"""Deaths of replicas during one call after which the call is not tried again."""
_COMPARE_ALL = 8
"""Up to this number of free replicas, all are compared; of more, two random ones."""
_REMEMBERED_MODELS = 4096


class Call:
    """One call of a deployment. Subclasses receive its answer; see `link.Link`."""

    # Class attributes are the defaults: setting twenty attributes for each call would cost more
    # than routing it.
    deadline: float | None = None
    """Time of the link's clock; None: no limit."""
    model_id = ""
    session_id = ""
    may_repeat = False
    """True if the call may run again after it began on a replica that died."""
    can_resend = True
    """False after a part of its request was sent that is not kept, or a part of its answer was
    passed on.
    """
    pinned = ""
    """Replica that must run the call; empty for any."""
    call_id = 0
    """Set by the link."""
    replica_id = ""
    """Replica that has the call; empty while it waits."""
    deaths = 0
    """Number of replicas that died while they ran this call."""
    expires = 0.0
    """Time until which it waits for a certain replica; 0 if it does not."""
    bucket = -1
    """Slot of its deadline in the link; -1 without one."""
    pending_request: PendingRequest | None = None
    """The call as a custom request router sees it."""
    queued_at = 0.0
    """Time at which the link could not send it immediately; 0 if it could."""

    def __init__(
        self, deployment: DeploymentId, kind: int, parts: tuple[bytes | memoryview, ...]
    ) -> None:
        self.deployment = deployment
        self.kind = kind
        """Kind of the first frame: HTTP or CALL."""
        self.parts = parts
        """Payload of that frame, kept until the call ends so that it can be sent again."""

    def on_started(self, replica_id: str) -> None:
        """Record that the call was sent to a replica; may be called again."""

    def on_frame(self, kind: int, payload: bytes) -> None:
        """Handle a frame of the answer."""
        raise NotImplementedError

    def on_failed(self, error: Exception) -> None:
        """Handle the end of the call without an answer of a replica."""
        raise NotImplementedError


class Send(NamedTuple):
    """Send the call to the replica."""

    call: Call
    replica_id: str


class Fail(NamedTuple):
    """End the call with an error."""

    call: Call
    error: Exception


class Lost(NamedTuple):
    """End the call with `death_error`: its replica died."""

    call: Call
    replica_id: str
    has_begun: bool


class SendCancel(NamedTuple):
    """Ask the replica to cancel the call."""

    call: Call
    replica_id: str


class Ask(NamedTuple):
    """Ask the user's request router for a replica; see `custom_router.CustomRouter`."""

    call: Call


Instruction = Send | Fail | Lost | SendCancel | Ask
_NOTHING: list[Instruction] = []


@dataclass(slots=True, eq=False)
class RoutedReplica:
    """A replica and the calls of this caller that it has."""

    id: str
    in_flight: dict[int, Call] = field(default_factory=dict)
    expected: OrderedDict[int, Call] = field(default_factory=OrderedDict)
    """Calls that wait for this replica, because it has their model or session."""
    is_busy: bool = False
    """True between BUSY and FREE."""
    is_removed: bool = False
    """True if it gets no more calls, because it drains."""
    free_index: int = -1
    """Index in the list of free replicas; -1 if it has no free slot."""


@dataclass(frozen=True, kw_only=True)
class RouterStatistics:
    """Counters of a router."""

    queued: int
    ongoing: int
    replicas: int


class DeploymentRouter:
    """Router of one deployment in one caller."""

    def __init__(self, route: DeploymentRoute, *, seed: int | None = None) -> None:
        self._route = route
        self._replicas: dict[str, RoutedReplica] = {}
        self._free: list[RoutedReplica] = []
        self._turn = 0
        self._queue: OrderedDict[int, Call] = OrderedDict()
        self._waiting: dict[int, RoutedReplica] = {}  # call id -> the replica that it waits for
        self._holders: OrderedDict[str, str] = OrderedDict()  # model id -> replica id
        self._random = random.Random(seed)

    @property
    def route(self) -> DeploymentRoute:
        """The data that the controller published last."""
        return self._route

    @property
    def queued(self) -> int:
        """Number of calls that wait for a replica."""
        return len(self._queue) + len(self._waiting)

    def ongoing(self) -> dict[str, int]:
        """Return the number of calls in flight of each replica."""
        return {id: len(replica.in_flight) for id, replica in self._replicas.items()}

    def statistics(self) -> RouterStatistics:
        """Return the current counts."""
        return RouterStatistics(
            queued=self.queued, ongoing=sum(self.ongoing().values()), replicas=len(self._replicas)
        )

    # -- calls

    def submit(self, call: Call, now: float) -> list[Instruction]:
        """Send a call, queue it, or refuse it."""
        if call.pinned:
            return self._submit_pinned(call)
        if not self._queue and self._free:
            replica = self._choose(call, now)
            if replica is not None:
                return [self._send(call, replica)]
            return _NOTHING
        route = self._route
        if route.unavailable is not None:
            return [Fail(call, DeploymentUnavailableError(route.id, route.unavailable))]
        if 0 <= route.max_queued_requests <= self.queued:
            return [self._refuse(call, self.queued)]
        self._queue[call.call_id] = call
        return _NOTHING

    def answered(self, replica_id: str, call_id: int, now: float) -> list[Instruction]:
        """Record the end of a call; send a waiting one."""
        replica = self._replicas.get(replica_id)
        if replica is None or replica.in_flight.pop(call_id, None) is None:
            return _NOTHING
        if replica.is_removed:
            self._forget_if_idle(replica)
            return _NOTHING
        if replica.free_index < 0 and not replica.is_busy and self._has_slot(replica):
            self._add_free(replica)
        return self._dispatch(now) if self._queue or self._waiting else _NOTHING

    def busy(self, replica_id: str, call_id: int, now: float) -> list[Instruction]:
        """Take a call back that the replica did not begin, because other callers hold its slots."""
        replica = self._replicas.get(replica_id)
        call = replica.in_flight.pop(call_id, None) if replica is not None else None
        if replica is None or call is None:
            return _NOTHING
        replica.is_busy = True
        self._remove_free(replica)
        self._forget_if_idle(replica)
        if call.pinned:
            return self._submit_pinned(call)
        self._requeue(call)
        return self._dispatch(now)

    def free(self, replica_id: str, now: float) -> list[Instruction]:
        """Record that a busy replica has free slots again."""
        replica = self._replicas.get(replica_id)
        if replica is None:
            return _NOTHING
        replica.is_busy = False
        if not replica.is_removed and self._has_slot(replica):
            self._add_free(replica)
        return self._dispatch(now)

    def cancelled(self, call: Call) -> list[Instruction]:
        """Drop a waiting call, or cancel it at its replica, which holds the slot until it ends."""
        if self._queue.pop(call.call_id, None) is not None:
            return _NOTHING
        expected_by = self._waiting.pop(call.call_id, None)
        if expected_by is not None:
            del expected_by.expected[call.call_id]
            return _NOTHING
        replica = self._replicas.get(call.replica_id)
        if replica is not None and call.call_id in replica.in_flight:
            return [SendCancel(call, replica.id)]
        return _NOTHING

    # -- replicas

    def replica_added(self, replica_id: str, now: float) -> list[Instruction]:
        """Add a connected replica, or one that was removed and still has calls."""
        replica = self._replicas.get(replica_id)
        if replica is None:
            replica = self._replicas[replica_id] = RoutedReplica(replica_id)
        replica.is_removed = False
        if not replica.is_busy and self._has_slot(replica):
            self._add_free(replica)
        return self._dispatch(now)

    def replica_removed(self, replica_id: str, now: float) -> list[Instruction]:
        """Send no more calls to a replica; its calls in flight continue."""
        replica = self._replicas.get(replica_id)
        if replica is None:
            return _NOTHING
        replica.is_removed = True
        self._remove_free(replica)
        failed = self._release_expected(replica)
        self._forget_if_idle(replica)
        return [*failed, *self._dispatch(now)]

    def replica_lost(
        self, replica_id: str, began: Iterable[int] | None, now: float
    ) -> list[Instruction]:
        """Handle the death of a replica.

        `began` has the ids of the calls that the replica had begun; None if unknown.
        """
        replica = self._replicas.pop(replica_id, None)
        if replica is None:
            return _NOTHING
        self._remove_free(replica)
        failed = self._release_expected(replica)
        known = None if began is None else frozenset(began)
        for call in reversed(list(replica.in_flight.values())):
            has_begun = known is None or call.call_id in known
            call.deaths += has_begun
            if (
                call.can_resend
                and not call.pinned
                and (not has_begun or (self._repeats(call) and call.deaths < MOST_DEATHS))
            ):
                self._requeue(call)
            else:
                failed.append(Lost(call, replica_id, has_begun))
        return [*failed, *self._dispatch(now)]

    def update(self, route: DeploymentRoute, now: float) -> list[Instruction]:
        """Apply new limits, or fail the waiting calls if the deployment became unavailable.

        Replicas are added and removed by their own methods.
        """
        self._route = route
        for replica in self._replicas.values():
            if replica.is_removed or replica.is_busy:
                continue
            if not self._has_slot(replica):
                self._remove_free(replica)
            elif replica.free_index < 0:
                self._add_free(replica)
        if route.unavailable is not None:
            error = DeploymentUnavailableError(route.id, route.unavailable)
            return self._fail_waiting(error)
        return self._dispatch(now)

    def take_over(self, other: DeploymentRouter) -> None:
        """Continue with the replicas and calls of the router before this one; `update` follows."""
        self._replicas, self._free = other._replicas, other._free
        self._queue, self._waiting = other._queue, other._waiting
        self._holders = other._holders

    def closed(self, error: Exception) -> list[Instruction]:
        """End all calls, because the deployment was deleted or the link closes."""
        running = [call for each in self._replicas.values() for call in each.in_flight.values()]
        self._replicas.clear()
        self._free.clear()
        return [*self._fail_waiting(error), *(Fail(call, error) for call in running)]

    # -- time

    def next_moment(self) -> float | None:
        """Return the time of the next `tick`; None if no call needs one."""
        if not self._waiting:
            return None
        return min(
            (
                call.expires
                for replica in self._replicas.values()
                for call in replica.expected.values()
                if not call.pinned
            ),
            default=None,
        )

    def tick(self, now: float) -> list[Instruction]:
        """Let calls that waited long enough for a certain replica go to any."""
        for replica in self._replicas.values():
            late = [
                call
                for call in replica.expected.values()
                if not call.pinned and call.expires <= now
            ]
            for call in reversed(late):
                del replica.expected[call.call_id], self._waiting[call.call_id]
                self._requeue(call)
        return self._dispatch(now)

    # -- choice

    def _has_slot(self, replica: RoutedReplica) -> bool:
        return len(replica.in_flight) < self._route.max_ongoing_requests

    def _choose(self, call: Call, now: float) -> RoutedReplica | None:
        """Return a free replica; None if the call now waits for the one with its model."""
        if call.model_id or call.session_id:
            preferred = self._preferred(call)
            if preferred is not None:
                if preferred.free_index >= 0:
                    return preferred
                if not call.expires:
                    call.expires = now + AFFINITY_S
                if now < call.expires:
                    self._expect(call, preferred)
                    return None
        free = self._free
        if len(free) == 1:
            return free[0]
        if len(free) > _COMPARE_ALL:
            first, second = self._random.choice(free), self._random.choice(free)
            return first if len(first.in_flight) <= len(second.in_flight) else second
        self._turn += 1
        start = self._turn % len(free)
        best = free[start]
        fewest = len(best.in_flight)
        for replica in free[start + 1 :] + free[:start]:
            if len(replica.in_flight) < fewest:
                best, fewest = replica, len(replica.in_flight)
        return best

    def _submit_pinned(self, call: Call) -> list[Instruction]:
        replica = self._replicas.get(call.pinned)
        if replica is None or replica.is_removed:
            error = ReplicaUnavailableError(f"replica {call.pinned} has ended")
            return [Fail(call, error)]
        if replica.free_index >= 0:
            return [self._send(call, replica)]
        self._expect(call, replica)
        return _NOTHING

    def _refuse(self, call: Call, queued: int) -> Fail:
        route = self._route
        error = BackPressureError(
            num_queued_requests=queued,
            max_queued_requests=route.max_queued_requests,
            status_code=route.backpressure_status,
            retry_after_s=route.retry_after_s,
        )
        return Fail(call, error)

    def _expect(self, call: Call, replica: RoutedReplica) -> None:
        replica.expected[call.call_id] = call
        self._waiting[call.call_id] = replica

    def _preferred(self, call: Call) -> RoutedReplica | None:
        if call.model_id:
            replica = self._replicas.get(self._holders.get(call.model_id, ""))
        else:
            replica = max(
                (each for each in self._replicas.values() if not each.is_removed),
                key=lambda each: _rendezvous(call.session_id, each.id),
                default=None,
            )
        return replica if replica is not None and not replica.is_removed else None

    def _send(self, call: Call, replica: RoutedReplica) -> Send:
        replica.in_flight[call.call_id] = call
        if len(replica.in_flight) >= self._route.max_ongoing_requests:
            self._remove_free(replica)
        call.replica_id = replica.id
        if call.model_id:
            self._holders[call.model_id] = replica.id
            self._holders.move_to_end(call.model_id)
            if len(self._holders) > _REMEMBERED_MODELS:
                self._holders.popitem(last=False)
        return Send(call, replica.id)

    def _dispatch(self, now: float) -> list[Instruction]:
        """Send waiting calls to free replicas."""
        sent = self._send_expected() if self._waiting else []
        while self._queue and self._free:
            _, call = self._queue.popitem(last=False)
            chosen = self._choose(call, now)
            if chosen is not None:
                sent.append(self._send(call, chosen))
        return sent

    def _send_expected(self) -> list[Instruction]:
        """Send calls to the replicas that they wait for."""
        sent: list[Instruction] = []
        for replica in list(self._free):
            while replica.expected and replica.free_index >= 0:
                call_id, call = replica.expected.popitem(last=False)
                del self._waiting[call_id]
                sent.append(self._send(call, replica))
        return sent

    # -- bookkeeping

    def _repeats(self, call: Call) -> bool:
        return call.may_repeat or self._route.idempotent

    def _requeue(self, call: Call) -> None:
        call.replica_id = ""
        self._queue[call.call_id] = call
        self._queue.move_to_end(call.call_id, last=False)

    def _release_expected(self, replica: RoutedReplica) -> list[Instruction]:
        """Let the calls that wait for a replica go to others; fail the pinned ones."""
        failed: list[Instruction] = []
        while replica.expected:
            call_id, call = replica.expected.popitem()
            del self._waiting[call_id]
            if call.pinned:
                failed.append(
                    Fail(call, ReplicaUnavailableError(f"replica {replica.id} has ended"))
                )
            else:
                self._requeue(call)
        return failed

    def _fail_waiting(self, error: Exception) -> list[Instruction]:
        waiting = [*self._queue.values()]
        for replica in self._replicas.values():
            waiting += replica.expected.values()
            replica.expected.clear()
        self._queue.clear()
        self._waiting.clear()
        return [Fail(call, error) for call in waiting]

    def _forget_if_idle(self, replica: RoutedReplica) -> None:
        if replica.is_removed and not replica.in_flight:
            self._replicas.pop(replica.id, None)

    def _add_free(self, replica: RoutedReplica) -> None:
        if replica.free_index < 0:
            replica.free_index = len(self._free)
            self._free.append(replica)

    def _remove_free(self, replica: RoutedReplica) -> None:
        index = replica.free_index
        if index >= 0:
            last = self._free.pop()
            if last is not replica:
                self._free[index] = last
                last.free_index = index
            replica.free_index = -1


def death_error(lost: Lost, cause: str) -> ReplicaUnavailableError:
    """Return the error of a call whose replica died of `cause`."""
    call, replica_id, has_begun = lost
    if call.deaths >= MOST_DEATHS:
        return ReplicaUnavailableError(
            f"this call was running on {call.deaths} replicas of {call.deployment} when they died, "
            f"the last on {replica_id} ({cause}); it is not tried again",
            replica_id=replica_id,
            is_poison=True,
        )
    if has_begun:
        reason = "while it handled this call, which cannot be repeated safely"
    elif call.pinned:
        reason = "before it handled this call, which was for this replica only"
    else:
        reason = "before it handled this call, a part of whose body was already sent"
    text = f"replica {replica_id} died ({cause}) {reason}"
    return ReplicaUnavailableError(text, replica_id=replica_id)


def _rendezvous(session_id: str, replica_id: str) -> bytes:
    return hashlib.blake2b(f"{session_id}\0{replica_id}".encode(), digest_size=8).digest()
