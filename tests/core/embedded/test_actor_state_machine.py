"""The lifecycle of an actor, as instruction lists."""

from __future__ import annotations

import itertools
import random

import pytest

from syncline.core.embedded.actor_state_machine import (
    QUEUED,
    REFUSED,
    ActorState,
    ActorStateMachine,
    Cause,
    CauseKind,
    Died,
    FailCall,
    PlaceActor,
    SendCall,
    StopProcess,
)
from syncline.core.state_machine import InvalidTransition


def alive(worker: int = 7, **options: int) -> ActorStateMachine:
    actor = ActorStateMachine(1, **options)
    assert actor.created() == [PlaceActor(1)]
    assert actor.placed(worker) == ()
    assert actor.constructed() == []
    return actor


def died(detail: str = "") -> Cause:
    return Cause(kind=CauseKind.WORKER_DIED, detail=detail)


def test_calls_before_the_actor_is_alive_are_sent_in_order_when_it_is() -> None:
    actor = ActorStateMachine(1)
    actor.created()
    assert actor.call(10) == QUEUED
    actor.placed(7)
    assert actor.call(11) == QUEUED
    assert actor.unanswered == 2
    assert actor.constructed() == [SendCall(10, 7), SendCall(11, 7)]
    assert actor.unanswered == 2


def test_call_of_an_alive_actor_is_sent_immediately() -> None:
    actor = alive(worker=7)
    assert actor.call(10) == 7
    assert actor.unanswered == 1
    assert actor.finished(10) == ()
    assert actor.unanswered == 0


def test_death_without_restarts_fails_every_call() -> None:
    actor = alive()
    actor.call(10)
    actor.call(11)
    cause = died("signal 9")
    assert actor.worker_died("signal 9") == [
        FailCall(10, cause, False),
        FailCall(11, cause, False),
        Died(1, cause),
    ]
    assert actor.state is ActorState.DEAD
    assert actor.death == cause
    assert actor.call(12) == REFUSED


def test_restart_fails_calls_without_retries_for_now_and_sends_the_others_first_and_in_order() -> (
    None
):
    actor = alive(max_restarts=1)
    for call, retries in ((10, 1), (11, 0), (12, -1)):
        actor.call(call, retries)
    assert actor.worker_died() == [FailCall(11, died(), True), PlaceActor(1)]
    assert actor.state is ActorState.RESTARTING
    assert actor.call(13) == QUEUED
    actor.placed(8)
    assert actor.constructed() == [SendCall(10, 8), SendCall(12, 8), SendCall(13, 8)]


def test_retries_of_a_call_are_counted_over_restarts() -> None:
    actor = alive(max_restarts=-1)
    actor.call(10, 1)
    assert actor.worker_died() == [PlaceActor(1)]
    actor.placed(8)
    assert actor.constructed() == [SendCall(10, 8)]
    assert actor.worker_died() == [FailCall(10, died(), True), PlaceActor(1)]


def test_restarts_end_after_max_restarts() -> None:
    actor = alive(max_restarts=2)
    for worker in (8, 9):
        assert actor.worker_died() == [PlaceActor(1)]
        actor.placed(worker)
        actor.constructed()
    assert actor.worker_died("exit code 1") == [Died(1, died("exit code 1"))]
    assert actor.restarts == 2


def test_process_that_dies_in_the_constructor_counts_as_a_restart() -> None:
    actor = ActorStateMachine(1, max_restarts=1)
    actor.placed(7)
    actor.call(10)
    assert actor.worker_died() == [PlaceActor(1)]
    actor.placed(8)
    assert actor.worker_died() == [FailCall(10, died(), False), Died(1, died())]


def test_constructor_that_raises_is_never_retried() -> None:
    actor = ActorStateMachine(1, max_restarts=-1)
    actor.placed(7)
    actor.call(10)
    error = ValueError("no")
    cause = Cause(kind=CauseKind.CONSTRUCTOR_FAILED, error=error)
    assert actor.constructor_failed(error) == [
        FailCall(10, cause, False),
        Died(1, cause),
        StopProcess(7, False),
    ]


def test_kill_prevents_restarts_by_default() -> None:
    cause = Cause(kind=CauseKind.KILLED)
    actor = alive(max_restarts=5)
    assert actor.killed() == [StopProcess(7, True), Died(1, cause)]
    actor = alive(max_restarts=5)
    actor.call(10)
    assert actor.killed(no_restart=False) == [
        StopProcess(7, True),
        FailCall(10, cause, True),
        PlaceActor(1),
    ]


def test_kill_of_an_actor_that_has_no_process() -> None:
    actor = ActorStateMachine(1)
    actor.call(10)
    assert actor.killed(no_restart=False) == ()
    cause = Cause(kind=CauseKind.KILLED)
    assert actor.killed() == [FailCall(10, cause, False), Died(1, cause)]
    assert actor.placed(7) == [StopProcess(7, True)]


def test_dropped_handle_ends_the_actor_after_its_calls() -> None:
    actor = alive()
    actor.call(10)
    actor.call(11)
    assert actor.handle_dropped() == ()
    assert actor.finished(10) == ()
    assert actor.finished(11) == [
        StopProcess(7, False),
        Died(1, Cause(kind=CauseKind.HANDLES_DROPPED)),
    ]


def test_dropped_handle_waits_for_the_constructor_and_the_queued_calls() -> None:
    actor = ActorStateMachine(1)
    actor.placed(7)
    actor.call(10)
    assert actor.handle_dropped() == ()
    assert actor.constructed() == [SendCall(10, 7)]
    assert actor.finished(10) == [
        StopProcess(7, False),
        Died(1, Cause(kind=CauseKind.HANDLES_DROPPED)),
    ]


def test_dropped_handle_ends_an_unplaced_actor_without_calls() -> None:
    actor = ActorStateMachine(1)
    assert actor.handle_dropped() == [Died(1, Cause(kind=CauseKind.HANDLES_DROPPED))]


def test_regained_handle_keeps_the_actor() -> None:
    actor = alive()
    actor.call(10)
    actor.handle_dropped()
    actor.handle_regained()
    assert actor.finished(10) == ()
    assert actor.state is ActorState.ALIVE


def test_exit_fails_the_other_calls_and_is_not_restarted() -> None:
    actor = alive(max_restarts=-1)
    actor.call(10)
    cause = Cause(kind=CauseKind.EXITED)
    assert actor.exit_requested() == [FailCall(10, cause, False), Died(1, cause)]


def test_actor_that_can_never_be_placed_fails_its_calls() -> None:
    actor = ActorStateMachine(1)
    actor.call(10)
    cause = Cause(kind=CauseKind.UNPLACEABLE, detail="gone")
    assert actor.unplaceable("gone") == [FailCall(10, cause, False), Died(1, cause)]


def test_only_calls_that_were_not_sent_can_be_cancelled() -> None:
    actor = ActorStateMachine(1)
    actor.call(10)
    actor.call(11)
    assert actor.cancel(10)
    actor.placed(7)
    assert actor.constructed() == [SendCall(11, 7)]
    assert not actor.cancel(11)


def test_events_after_the_death_are_ignored() -> None:
    actor = alive()
    actor.call(10)
    actor.killed()
    assert actor.finished(10) == ()
    assert actor.worker_died() == ()
    assert actor.constructed() == ()
    assert actor.constructor_failed(None) == ()
    assert actor.killed() == ()
    assert actor.handle_dropped() == ()
    assert actor.exit_requested() == ()


def test_invalid_transition_contains_the_history() -> None:
    actor = alive()
    with pytest.raises(InvalidTransition, match="(?s)actor 1 .*ALIVE to STARTING.*constructed"):
        actor.placed(8)


@pytest.mark.parametrize("seed", range(20))
def test_no_call_is_lost_in_random_histories(seed: int) -> None:
    chance = random.Random(seed)
    actor = ActorStateMachine(1, max_restarts=chance.choice([-1, 0, 3]))
    retries = chance.choice([-1, 0, 2])
    open_calls: set[int] = set()
    sent: set[int] = set()
    workers = itertools.count(100)
    next_call = itertools.count()

    def apply(steps: object) -> None:
        for step in steps:  # type: ignore[attr-defined]
            if isinstance(step, FailCall):
                open_calls.remove(step.call_id)
                sent.discard(step.call_id)
            elif isinstance(step, SendCall):
                assert step.worker == actor.worker
                sent.add(step.call_id)

    for _ in range(400):
        if chance.random() < 0.5:
            call = next(next_call)
            answer = actor.call(call, retries)
            if answer != REFUSED:
                open_calls.add(call)
            if answer >= 0:
                sent.add(call)
        elif actor.state in (ActorState.PENDING, ActorState.RESTARTING):
            apply(actor.placed(next(workers)))
        elif actor.state is ActorState.STARTING:
            apply(actor.worker_died() if chance.random() < 0.1 else actor.constructed())
        elif sent and chance.random() < 0.9:
            call = chance.choice(sorted(sent))
            sent.remove(call)
            open_calls.remove(call)
            apply(actor.finished(call))
        else:
            sent.clear()
            apply(actor.worker_died())
        assert open_calls == {*actor._in_flight, *(call for call, _ in actor._queue)}
    apply(actor.killed())
    assert not open_calls
