"""States of a training run, the table of their transitions, and the limits of its timers."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.core.state_machine import StateEnum, TransitionTable
from syncline.train.workers.messages import UPLOAD_GRACE_S


class State(StateEnum):
    """State of the run."""

    INITIALIZING = "initializing"
    SCHEDULING = "scheduling"
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    RESTARTING = "restarting"
    FINISHING = "finishing"
    FINISHED = "finished"
    ERRORED = "errored"
    ABORTED = "aborted"

    @property
    def is_end(self) -> bool:
        """True if no state follows."""
        return not TRANSITIONS[self]


TRANSITIONS: TransitionTable[State] = {
    State.INITIALIZING: frozenset({State.SCHEDULING, State.ERRORED, State.ABORTED}),
    State.SCHEDULING: frozenset({State.STARTING, State.RESTARTING, State.ERRORED, State.ABORTED}),
    State.STARTING: frozenset({State.RUNNING, State.RESTARTING, State.ERRORED, State.ABORTED}),
    State.RUNNING: frozenset(
        {State.DRAINING, State.FINISHING, State.RESTARTING, State.ERRORED, State.ABORTED}
    ),
    State.DRAINING: frozenset({State.RESTARTING, State.ERRORED, State.ABORTED}),
    State.RESTARTING: frozenset({State.SCHEDULING, State.ERRORED, State.ABORTED}),
    State.FINISHING: frozenset({State.FINISHED, State.ERRORED, State.ABORTED}),
    State.FINISHED: frozenset(),
    State.ERRORED: frozenset(),
    State.ABORTED: frozenset(),
}

GRACE_TIMER = "grace"
DRAIN_TIMER = "drain"
PREEMPTION_TIMER = "preemption"
RESIZE_TIMER = "resize"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Time limits of the state machine, in seconds."""

    report_s: float
    """Wait for the other ranks' reports after one rank has reported a checkpoint."""
    collective_s: float
    """Wait for the other ranks after one rank has reached `collective`."""
    grace_s: float = 0.5
    """Wait, after a failure, for reports that complete a checkpoint of the failed ranks."""
    upload_grace_s: float = UPLOAD_GRACE_S
    """Wait, after that, for uploads of a checkpoint that every rank has reported."""
    drain_s: float = 0.5
    """Wait, after a failure, for the buffered messages of the survivors."""
    preemption_grace_s: float = 0.0
    """Time that ranks may run after the deadline of a preemption."""
    resize_s: float | None = None
    """Interval of capacity checks; None if the number of workers is fixed."""
    relax_on_preemption: bool = False
    """Do not wait for ranks that have ended in a preemption."""
