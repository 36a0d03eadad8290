"""The life of one actor and its calls: a pure state machine from events to instructions.

Where the actor runs is the scheduler's business, sending frames is the driver's. This module
decides when a call may be sent, what becomes of calls when a process dies, and when an actor is
over. The way of a call: `ActorLife.call` -> sent at once if the actor is alive, else queued -> in
flight until `ActorLife.finished`. Events that come after the death are ignored, because a dying
process may still have sent them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class ActorState(str, Enum):
    """Where an actor is in its life."""

    PENDING = "PENDING"
    """Waits for resources or for a process."""
    STARTING = "STARTING"
    """Has a process, in which the constructor runs."""
    ALIVE = "ALIVE"
    """Answers calls."""
    RESTARTING = "RESTARTING"
    """Lost its process and waits for another."""
    DEAD = "DEAD"
    """Over for good."""


class ActorEvent(str, Enum):
    """What can happen to an actor."""

    PLACED = "placed"
    CONSTRUCTED = "constructed"
    CONSTRUCTOR_FAILED = "constructor failed"
    LOST = "process lost, restarts left"
    ENDED = "ended"


_NEXT: dict[tuple[ActorState, ActorEvent], ActorState] = {
    (ActorState.PENDING, ActorEvent.PLACED): ActorState.STARTING,
    (ActorState.PENDING, ActorEvent.ENDED): ActorState.DEAD,
    (ActorState.STARTING, ActorEvent.CONSTRUCTED): ActorState.ALIVE,
    (ActorState.STARTING, ActorEvent.CONSTRUCTOR_FAILED): ActorState.DEAD,
    (ActorState.STARTING, ActorEvent.LOST): ActorState.RESTARTING,
    (ActorState.STARTING, ActorEvent.ENDED): ActorState.DEAD,
    (ActorState.ALIVE, ActorEvent.LOST): ActorState.RESTARTING,
    (ActorState.ALIVE, ActorEvent.ENDED): ActorState.DEAD,
    (ActorState.RESTARTING, ActorEvent.PLACED): ActorState.STARTING,
    (ActorState.RESTARTING, ActorEvent.ENDED): ActorState.DEAD,
}


class CauseKind(str, Enum):
    """Why a call failed or an actor ended."""

    WORKER_DIED = "worker died"
    OUT_OF_MEMORY = "memory ran out"
    CONSTRUCTOR_FAILED = "constructor failed"
    KILLED = "killed"
    EXITED = "exited on its own request"
    HANDLES_DROPPED = "no handle left"
    UNPLACEABLE = "cannot be placed"


PROCESS_DEATHS = (CauseKind.WORKER_DIED, CauseKind.OUT_OF_MEMORY)
"""The process ended by itself, so that its log may tell why."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why a call failed or an actor ended; the driver makes the exception from it."""

    kind: CauseKind
    detail: str = ""
    """For people: exit code or signal, the tail of the log."""
    error: object = None
    """What the constructor raised, in the form in which it came from the worker."""


class PlaceActor(NamedTuple):
    """Ask the scheduler for a place and report it with ``placed``."""

    actor_id: int


class SendCall(NamedTuple):
    """Send the call to the actor's process."""

    call_id: int
    worker: int


class FailCall(NamedTuple):
    """The call has no result. ``temporary``: the actor itself comes back, so a later call may
    succeed.
    """

    call_id: int
    cause: Cause
    temporary: bool


class StopProcess(NamedTuple):
    """End the actor's process: at once if ``force``, else politely, letting it run its exit
    handlers.
    """

    worker: int
    force: bool


class Died(NamedTuple):
    """The actor is over for good: free its resources and its name."""

    actor_id: int
    cause: Cause


Step = PlaceActor | SendCall | FailCall | StopProcess | Died
_NOTHING: Sequence[Step] = ()

QUEUED = -1
"""Answer of `ActorLife.call`: the call is kept until the actor is alive."""
REFUSED = -2
"""Answer of `ActorLife.call`: the actor is dead, for the reason in `ActorLife.death`."""


class InvalidTransition(RuntimeError):
    """An event that cannot happen in the actor's state: a defect of the engine. The message tells
    the actor's history.
    """

    def __init__(self, life: ActorLife, event: ActorEvent) -> None:
        self.history = tuple(life.history)
        story = (
            ", ".join(f"{event.value} -> {state.value}" for event, state in self.history)
            or "nothing yet"
        )
        super().__init__(
            f"actor {life.actor_id} is {life.state.value}, where {event.value!r} cannot happen; what happened before: {story}. "
            f"This is a defect of syncline, please report it with this message"
        )


class ActorLife:
    """State, calls and restarts of one actor. Call ids are chosen by the driver; not
    thread-safe.
    """

    __slots__ = (
        "_ending",
        "_in_flight",
        "_queue",
        "actor_id",
        "death",
        "history",
        "max_restarts",
        "max_task_retries",
        "restarts",
        "state",
        "worker",
    )

    def __init__(self, actor_id: int, *, max_restarts: int = 0, max_task_retries: int = 0) -> None:
        """``max_restarts`` and ``max_task_retries`` count from 0, and -1 means without end. The
        second is the default for each call.
        """
        self.actor_id = actor_id
        self.max_restarts = max_restarts
        self.max_task_retries = max_task_retries
        self.state = ActorState.PENDING
        self.worker: int | None = None
        """The actor's process, in STARTING and ALIVE."""
        self.restarts = 0
        self.death: Cause | None = None
        """Why the actor is DEAD."""
        self.history: deque[tuple[ActorEvent, ActorState]] = deque(maxlen=50)
        """The last events, each with the state that it led to."""
        self._queue: deque[tuple[int, int]] = deque()
        """Calls that wait for ALIVE, in order: (call id, retries left)."""
        self._in_flight: dict[int, int] = {}
        """Calls that were sent and not answered, in order: call id -> retries left."""
        self._ending = False
        """No handle is left: the actor ends when its calls are done."""

    # Calls

    def call(self, call_id: int, retries: int | None = None) -> int:
        """A call is ready: the worker to send it to now, or `QUEUED`, or `REFUSED`. ``retries``
        replaces ``max_task_retries``.
        """
        if self.state is ActorState.ALIVE:
            self._in_flight[call_id] = self.max_task_retries if retries is None else retries
            assert self.worker is not None
            return self.worker
        if self.state is ActorState.DEAD:
            return REFUSED
        self._queue.append((call_id, self.max_task_retries if retries is None else retries))
        return QUEUED

    def finished(self, call_id: int) -> Sequence[Step]:
        """The process has answered the call, well or badly. Unknown calls are ignored: they failed
        when the process seemed dead.
        """
        self._in_flight.pop(call_id, None)
        return self._end_if_idle() if self._ending else _NOTHING

    def cancel(self, call_id: int) -> bool:
        """Remove a call that has not been sent; false if it is not queued here."""
        for item in self._queue:
            if item[0] == call_id:
                self._queue.remove(item)
                return True
        return False

    @property
    def unanswered(self) -> int:
        """How many calls were queued or sent and not answered."""
        return len(self._queue) + len(self._in_flight)

    def waiting_calls(self) -> list[int]:
        """Calls that wait for the actor to be alive, in order."""
        return [call_id for call_id, _ in self._queue]

    def calls_in_flight(self) -> list[int]:
        """Calls that were sent and not answered, in order."""
        return list(self._in_flight)

    # Life

    def created(self) -> Sequence[Step]:
        """The first event."""
        return [PlaceActor(self.actor_id)]

    def placed(self, worker: int) -> Sequence[Step]:
        """The scheduler has given the actor a process; the driver sends the constructor. A dead
        actor's process is stopped again.
        """
        if self.state is ActorState.DEAD:
            return [StopProcess(worker, force=True)]
        self._move(ActorEvent.PLACED)
        self.worker = worker
        return _NOTHING

    def constructed(self) -> Sequence[Step]:
        """The constructor has returned: all calls that wait are sent, in order."""
        if self.state is ActorState.DEAD:
            return _NOTHING
        self._move(ActorEvent.CONSTRUCTED)
        worker = self.worker
        assert worker is not None
        steps: list[Step] = [SendCall(call_id, worker) for call_id, _ in self._queue]
        self._in_flight.update(self._queue)
        self._queue.clear()
        steps.extend(self._end_if_idle())
        return steps

    def constructor_failed(self, error: object) -> Sequence[Step]:
        """The constructor has raised. That is never retried: it would raise again."""
        if self.state is ActorState.DEAD:
            return _NOTHING
        worker = self.worker
        steps = self._end(
            Cause(kind=CauseKind.CONSTRUCTOR_FAILED, error=error), ActorEvent.CONSTRUCTOR_FAILED
        )
        return [*steps, StopProcess(worker, force=False)] if worker is not None else steps

    def worker_died(
        self, detail: str = "", kind: CauseKind = CauseKind.WORKER_DIED
    ) -> Sequence[Step]:
        """The process is gone; ``detail`` says how. Also while the constructor ran, which counts as
        a restart, too.
        """
        return self._lose(Cause(kind=kind, detail=detail))

    def killed(self, *, no_restart: bool = True) -> Sequence[Step]:
        """Somebody called ``kill``. With ``no_restart=False`` the actor loses its process only, and
        is restarted if restarts are left.
        """
        if self.state is ActorState.DEAD or (self.worker is None and not no_restart):
            return _NOTHING
        stop: list[Step] = [] if self.worker is None else [StopProcess(self.worker, force=True)]
        cause = Cause(kind=CauseKind.KILLED)
        return [*stop, *(self._end(cause) if no_restart else self._lose(cause))]

    def unplaceable(self, detail: str) -> Sequence[Step]:
        """The actor will never have a process: its environment cannot be made, or its placement
        group was removed.
        """
        return self._over(Cause(kind=CauseKind.UNPLACEABLE, detail=detail))

    def exit_requested(self) -> Sequence[Step]:
        """The actor ends itself (``exit_actor``); the process leaves on its own."""
        return self._over(Cause(kind=CauseKind.EXITED))

    def handle_dropped(self) -> Sequence[Step]:
        """The last handle is gone: the actor ends after the calls that it has, and after a
        constructor that runs.
        """
        if self.state is ActorState.DEAD:
            return _NOTHING
        self._ending = True
        return self._end_if_idle()

    def handle_regained(self) -> None:
        """A handle came back before the end, for example out of an object or by name."""
        self._ending = False

    # Inside

    def _end_if_idle(self) -> Sequence[Step]:
        if (
            not self._ending
            or self._in_flight
            or self._queue
            or self.state in (ActorState.STARTING, ActorState.DEAD)
        ):
            return _NOTHING
        stop: list[Step] = [] if self.worker is None else [StopProcess(self.worker, force=False)]
        return [*stop, *self._end(Cause(kind=CauseKind.HANDLES_DROPPED))]

    def _over(self, cause: Cause) -> Sequence[Step]:
        return _NOTHING if self.state is ActorState.DEAD else self._end(cause)

    def _lose(self, cause: Cause) -> Sequence[Step]:
        """The process is lost: restart if that is allowed. Calls in flight are sent again, first
        and in order, as often as each allows.
        """
        if self.state is ActorState.DEAD:
            return _NOTHING
        if self.max_restarts != -1 and self.restarts >= self.max_restarts:
            return self._end(cause)
        self._move(ActorEvent.LOST)
        self.worker = None
        self.restarts += 1
        steps: list[Step] = [
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

    def _end(self, cause: Cause, event: ActorEvent = ActorEvent.ENDED) -> Sequence[Step]:
        self._move(event)
        self.worker = None
        self.death = cause
        calls = [*self._in_flight, *(call_id for call_id, _ in self._queue)]
        self._in_flight.clear()
        self._queue.clear()
        return [
            *(FailCall(call_id, cause, temporary=False) for call_id in calls),
            Died(self.actor_id, cause),
        ]

    def _move(self, event: ActorEvent) -> None:
        following = _NEXT.get((self.state, event))
        if following is None:
            raise InvalidTransition(self, event)
        self.state = following
        self.history.append((event, following))
