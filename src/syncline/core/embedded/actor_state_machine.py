"""The lifecycle of one actor and its calls: a pure state machine from events to instructions.

The scheduler places the actor and the hub sends messages. This module decides when a call may be
sent, what happens to calls when a process dies, and when the actor is dead. A call is sent
immediately if the actor is alive, otherwise queued; it is in flight until `finished`. Events after
the actor's death are ignored, because a dying process may still have sent them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from syncline.core.state_machine import Lifecycle, TransitionTable
from syncline.records import dataclass


class ActorState(str, Enum):
    """State of an actor."""

    PENDING = "PENDING"
    """Waits for resources or a process."""
    STARTING = "STARTING"
    """Its constructor runs in a process."""
    ALIVE = "ALIVE"
    """Executes calls."""
    RESTARTING = "RESTARTING"
    """Lost its process and waits for another."""
    DEAD = "DEAD"
    """Ended; no restart is left."""


TRANSITIONS: TransitionTable[ActorState] = {
    ActorState.PENDING: frozenset({ActorState.STARTING, ActorState.DEAD}),
    ActorState.STARTING: frozenset({ActorState.ALIVE, ActorState.RESTARTING, ActorState.DEAD}),
    ActorState.ALIVE: frozenset({ActorState.RESTARTING, ActorState.DEAD}),
    ActorState.RESTARTING: frozenset({ActorState.STARTING, ActorState.DEAD}),
    ActorState.DEAD: frozenset(),
}


class CauseKind(str, Enum):
    """Reason why a call failed or an actor ended."""

    WORKER_DIED = "worker died"
    OUT_OF_MEMORY = "memory ran out"
    CONSTRUCTOR_FAILED = "constructor failed"
    KILLED = "killed"
    EXITED = "exited on its own request"
    HANDLES_DROPPED = "no handle left"
    UNPLACEABLE = "cannot be placed"


PROCESS_DEATHS = (CauseKind.WORKER_DIED, CauseKind.OUT_OF_MEMORY)
"""The process died unexpectedly, so its log may explain the death."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Reason of a failed call or an actor's end; the hub makes the exception from it."""

    kind: CauseKind
    detail: str = ""
    """Text for users: exit code or signal, the tail of the log."""
    error: object = None
    """Pickled error of the constructor, as the worker sent it."""


class PlaceActor(NamedTuple):
    """Place the actor with the scheduler and report it with `placed`."""

    actor_id: int


class SendCall(NamedTuple):
    """Send the call to the actor's process."""

    call_id: int
    worker: int


class FailCall(NamedTuple):
    """Fail the call. If `temporary`, the actor restarts, so a later call may succeed."""

    call_id: int
    cause: Cause
    temporary: bool


class StopProcess(NamedTuple):
    """Kill the actor's process if `force`, otherwise let it run its exit handlers."""

    worker: int
    force: bool


class Died(NamedTuple):
    """Free the resources and the name of a dead actor."""

    actor_id: int
    cause: Cause


ActorInstruction = PlaceActor | SendCall | FailCall | StopProcess | Died
_NOTHING: Sequence[ActorInstruction] = ()

QUEUED = -1
"""Result of `ActorStateMachine.call`: the call is queued until the actor is alive."""
REFUSED = -2
"""Result of `ActorStateMachine.call`: the actor is dead, for the reason in `death`."""


class ActorStateMachine:
    """State, calls and restarts of one actor. The caller chooses call ids. Not thread-safe."""

    def __init__(self, actor_id: int, *, max_restarts: int = 0) -> None:
        """`max_restarts` is a count, -1 means unlimited."""
        self.actor_id = actor_id
        self.max_restarts = max_restarts
        self.state = ActorState.PENDING  # copy of the lifecycle's state, for fast access
        self.worker: int | None = None
        """The actor's process, in STARTING and ALIVE."""
        self.restarts = 0
        self.death: Cause | None = None
        """Reason of the death, if the state is DEAD."""
        self._lifecycle = Lifecycle(f"actor {actor_id}", TRANSITIONS, ActorState.PENDING)
        self._queue: deque[tuple[int, int]] = deque()
        """Calls that wait for ALIVE, in order: (call id, retries left)."""
        self._in_flight: dict[int, int] = {}
        """Calls that were sent and have no result, in order: call id -> retries left."""
        self._ending = False
        """True when no handle is left: the actor ends after its calls."""

    # Calls

    def call(self, call_id: int, retries: int = 0) -> int:
        """Return the worker to send a call to, or `QUEUED` or `REFUSED`.

        `retries` is a count, -1 means unlimited.
        """
        if self.state is ActorState.ALIVE:
            self._in_flight[call_id] = retries
            assert self.worker is not None
            return self.worker
        if self.state is ActorState.DEAD:
            return REFUSED
        self._queue.append((call_id, retries))
        return QUEUED

    def finished(self, call_id: int) -> Sequence[ActorInstruction]:
        """Handle the result of a call. Unknown calls are ignored: they failed with a process."""
        self._in_flight.pop(call_id, None)
        return self._end_if_idle() if self._ending else _NOTHING

    def cancel(self, call_id: int) -> bool:
        """Remove a call that was not sent; return False if it is not queued."""
        for item in self._queue:
            if item[0] == call_id:
                self._queue.remove(item)
                return True
        return False

    @property
    def unanswered(self) -> int:
        """Number of calls without a result."""
        return len(self._queue) + len(self._in_flight)

    # Lifecycle

    def created(self) -> Sequence[ActorInstruction]:
        """Handle the creation: place the actor."""
        return [PlaceActor(self.actor_id)]

    def placed(self, worker: int) -> Sequence[ActorInstruction]:
        """Handle the actor's process; stop it if the actor is dead."""
        if self.state is ActorState.DEAD:
            return [StopProcess(worker, force=True)]
        self._go(ActorState.STARTING, "placed")
        self.worker = worker
        return _NOTHING

    def constructed(self) -> Sequence[ActorInstruction]:
        """Handle the return of the constructor: send all queued calls, in order."""
        if self.state is ActorState.DEAD:
            return _NOTHING
        self._go(ActorState.ALIVE, "constructed")
        worker = self.worker
        assert worker is not None
        steps: list[ActorInstruction] = [SendCall(call_id, worker) for call_id, _ in self._queue]
        self._in_flight.update(self._queue)
        self._queue.clear()
        steps.extend(self._end_if_idle())
        return steps

    def constructor_failed(self, error: object) -> Sequence[ActorInstruction]:
        """Handle an error of the constructor; never retried, because it would raise again."""
        if self.state is ActorState.DEAD:
            return _NOTHING
        worker = self.worker
        steps = self._end(Cause(kind=CauseKind.CONSTRUCTOR_FAILED, error=error))
        return [*steps, StopProcess(worker, force=False)] if worker is not None else steps

    def worker_died(
        self, detail: str = "", kind: CauseKind = CauseKind.WORKER_DIED
    ) -> Sequence[ActorInstruction]:
        """Handle the death of the process; `detail` describes it.

        A death while the constructor runs also counts as a restart.
        """
        return self._lose(Cause(kind=kind, detail=detail))

    def killed(self, *, no_restart: bool = True) -> Sequence[ActorInstruction]:
        """Handle `kill`. With `no_restart=False` only the process ends, if a restart is left."""
        if self.state is ActorState.DEAD or (self.worker is None and not no_restart):
            return _NOTHING
        stop: list[ActorInstruction] = (
            [] if self.worker is None else [StopProcess(self.worker, force=True)]
        )
        cause = Cause(kind=CauseKind.KILLED)
        return [*stop, *(self._end(cause) if no_restart else self._lose(cause))]

    def unplaceable(self, detail: str) -> Sequence[ActorInstruction]:
        """Handle that the actor will never have a process, for the reason in `detail`."""
        return self._end_if_alive(Cause(kind=CauseKind.UNPLACEABLE, detail=detail))

    def exit_requested(self) -> Sequence[ActorInstruction]:
        """Handle `exit_actor`; the process exits without a stop instruction."""
        return self._end_if_alive(Cause(kind=CauseKind.EXITED))

    def handle_dropped(self) -> Sequence[ActorInstruction]:
        """Handle the loss of the last handle: end after the current calls or constructor."""
        if self.state is ActorState.DEAD:
            return _NOTHING
        self._ending = True
        return self._end_if_idle()

    def handle_regained(self) -> None:
        """Handle a new handle before the end, for example from `get_actor`."""
        self._ending = False

    # Helpers

    def _end_if_idle(self) -> Sequence[ActorInstruction]:
        if (
            not self._ending
            or self._in_flight
            or self._queue
            or self.state in (ActorState.STARTING, ActorState.DEAD)
        ):
            return _NOTHING
        stop: list[ActorInstruction] = (
            [] if self.worker is None else [StopProcess(self.worker, force=False)]
        )
        return [*stop, *self._end(Cause(kind=CauseKind.HANDLES_DROPPED))]

    def _end_if_alive(self, cause: Cause) -> Sequence[ActorInstruction]:
        return _NOTHING if self.state is ActorState.DEAD else self._end(cause)

    def _lose(self, cause: Cause) -> Sequence[ActorInstruction]:
        """Handle the loss of the process: restart if allowed.

        Calls in flight with retries left are sent again, first and in order.
        """
        if self.state is ActorState.DEAD:
            return _NOTHING
        if self.max_restarts != -1 and self.restarts >= self.max_restarts:
            return self._end(cause)
        self._go(ActorState.RESTARTING, f"process lost: {cause.kind.value}")
        self.worker = None
        self.restarts += 1
        steps: list[ActorInstruction] = [
            FailCall(call_id, cause, temporary=True)
            for call_id, left in self._in_flight.items()
            if left == 0
        ]
        again = [
            (call_id, left - 1 if left > 0 else left)
            for call_id, left in self._in_flight.items()
            if left != 0
        ]
        self._in_flight.clear()
        self._queue.extendleft(reversed(again))
        ended = self._end_if_idle()
        return [*steps, *(ended or [PlaceActor(self.actor_id)])]

    def _end(self, cause: Cause) -> Sequence[ActorInstruction]:
        self._go(ActorState.DEAD, cause.kind.value)
        self.worker = None
        self.death = cause
        calls = [*self._in_flight, *(call_id for call_id, _ in self._queue)]
        self._in_flight.clear()
        self._queue.clear()
        return [
            *(FailCall(call_id, cause, temporary=False) for call_id in calls),
            Died(self.actor_id, cause),
        ]

    def _go(self, target: ActorState, reason: str) -> None:
        self._lifecycle.go(target, reason)
        self.state = target
