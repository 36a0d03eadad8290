"""The life of an actor, told by instruction lists."""

from __future__ import annotations

import itertools
import random

import pytest

from syncline.core.embedded.actors import (
    QUEUED,
    REFUSED,
    ActorLife,
    ActorState,
    Cause,
    CauseKind,
    Died,
    FailCall,
    InvalidTransition,
    PlaceActor,
    SendCall,
    StopProcess,
)


def alive(worker: int = 7, **options: int) -> ActorLife:
    life = ActorLife(1, **options)
    assert life.created() == [PlaceActor(1)]
    assert life.placed(worker) == ()
    assert life.constructed() == []
    return life


def died(detail: str = "") -> Cause:
    return Cause(kind=CauseKind.WORKER_DIED, detail=detail)


def test_calls_before_the_actor_is_alive_are_sent_in_order_when_it_is() -> None:
    life = ActorLife(1)
    life.created()
    assert life.call(10) == QUEUED
    life.placed(7)
    assert life.call(11) == QUEUED
    assert life.waiting_calls() == [10, 11]
    assert life.constructed() == [SendCall(10, 7), SendCall(11, 7)]
    assert life.calls_in_flight() == [10, 11]


def test_call_of_a_living_actor_is_sent_at_once() -> None:
    life = alive(worker=7)
    assert life.call(10) == 7
    assert life.calls_in_flight() == [10]
    assert life.finished(10) == ()
    assert life.calls_in_flight() == []


def test_death_without_restarts_fails_every_call_for_good() -> None:
    life = alive()
    life.call(10)
    life.call(11)
    cause = died("signal 9")
    assert life.worker_died("signal 9") == [
        FailCall(10, cause, False),
        FailCall(11, cause, False),
        Died(1, cause),
    ]
    assert life.state is ActorState.DEAD
    assert life.death == cause
    assert life.call(12) == REFUSED


def test_restart_fails_calls_without_retries_for_now_and_sends_the_others_first_and_in_order() -> (
    None
):
    life = alive(max_restarts=1)
    for call, retries in ((10, 1), (11, 0), (12, -1)):
        life.call(call, retries)
    assert life.worker_died() == [FailCall(11, died(), True), PlaceActor(1)]
    assert life.state is ActorState.RESTARTING
    assert life.call(13) == QUEUED
    life.placed(8)
    assert life.constructed() == [SendCall(10, 8), SendCall(12, 8), SendCall(13, 8)]


def test_retries_of_a_call_are_counted_over_restarts() -> None:
    life = alive(max_restarts=-1, max_task_retries=1)
    life.call(10)
    assert life.worker_died() == [PlaceActor(1)]
    life.placed(8)
    assert life.constructed() == [SendCall(10, 8)]
    assert life.worker_died() == [FailCall(10, died(), True), PlaceActor(1)]


def test_restarts_end_after_max_restarts() -> None:
    life = alive(max_restarts=2)
    for worker in (8, 9):
        assert life.worker_died() == [PlaceActor(1)]
        life.placed(worker)
        life.constructed()
    assert life.worker_died("exit code 1") == [Died(1, died("exit code 1"))]
    assert life.restarts == 2


def test_process_that_dies_in_the_constructor_counts_as_a_restart() -> None:
    life = ActorLife(1, max_restarts=1)
    life.placed(7)
    life.call(10)
    assert life.worker_died() == [PlaceActor(1)]
    life.placed(8)
    assert life.worker_died() == [FailCall(10, died(), False), Died(1, died())]


def test_constructor_that_raises_is_never_retried() -> None:
    life = ActorLife(1, max_restarts=-1)
    life.placed(7)
    life.call(10)
    error = ValueError("no")
    cause = Cause(kind=CauseKind.CONSTRUCTOR_FAILED, error=error)
    assert life.constructor_failed(error) == [
        FailCall(10, cause, False),
        Died(1, cause),
        StopProcess(7, False),
    ]


def test_kill_beats_restarts_unless_told_otherwise() -> None:
    cause = Cause(kind=CauseKind.KILLED)
    life = alive(max_restarts=5)
    assert life.killed() == [StopProcess(7, True), Died(1, cause)]
    life = alive(max_restarts=5)
    life.call(10)
    assert life.killed(no_restart=False) == [
        StopProcess(7, True),
        FailCall(10, cause, True),
        PlaceActor(1),
    ]


def test_kill_of_an_actor_that_has_no_process() -> None:
    life = ActorLife(1)
    life.call(10)
    assert life.killed(no_restart=False) == ()
    cause = Cause(kind=CauseKind.KILLED)
    assert life.killed() == [FailCall(10, cause, False), Died(1, cause)]
    assert life.placed(7) == [StopProcess(7, True)]


def test_dropped_handle_ends_the_actor_after_its_calls() -> None:
    life = alive()
    life.call(10)
    life.call(11)
    assert life.handle_dropped() == ()
    assert life.finished(10) == ()
    assert life.finished(11) == [
        StopProcess(7, False),
        Died(1, Cause(kind=CauseKind.HANDLES_DROPPED)),
    ]


def test_dropped_handle_waits_for_the_constructor_and_the_queued_calls() -> None:
    life = ActorLife(1)
    life.placed(7)
    life.call(10)
    assert life.handle_dropped() == ()
    assert life.constructed() == [SendCall(10, 7)]
    assert life.finished(10) == [
        StopProcess(7, False),
        Died(1, Cause(kind=CauseKind.HANDLES_DROPPED)),
    ]


def test_dropped_handle_of_an_actor_that_nobody_waits_for_ends_it_before_it_is_placed() -> None:
    life = ActorLife(1)
    assert life.handle_dropped() == [Died(1, Cause(kind=CauseKind.HANDLES_DROPPED))]


def test_regained_handle_keeps_the_actor() -> None:
    life = alive()
    life.call(10)
    life.handle_dropped()
    life.handle_regained()
    assert life.finished(10) == ()
    assert life.state is ActorState.ALIVE


def test_exit_fails_the_other_calls_and_is_not_restarted() -> None:
    life = alive(max_restarts=-1)
    life.call(10)
    cause = Cause(kind=CauseKind.EXITED)
    assert life.exit_requested() == [FailCall(10, cause, False), Died(1, cause)]


def test_actor_that_can_never_be_placed_fails_its_calls() -> None:
    life = ActorLife(1)
    life.call(10)
    cause = Cause(kind=CauseKind.UNPLACEABLE, detail="gone")
    assert life.unplaceable("gone") == [FailCall(10, cause, False), Died(1, cause)]


def test_only_calls_that_were_not_sent_can_be_cancelled() -> None:
    life = ActorLife(1)
    life.call(10)
    life.call(11)
    assert life.cancel(10)
    life.placed(7)
    assert life.constructed() == [SendCall(11, 7)]
    assert not life.cancel(11)


def test_everything_after_the_death_is_ignored() -> None:
    life = alive()
    life.call(10)
    life.killed()
    assert life.finished(10) == ()
    assert life.worker_died() == ()
    assert life.constructed() == ()
    assert life.constructor_failed(None) == ()
    assert life.killed() == ()
    assert life.handle_dropped() == ()
    assert life.exit_requested() == ()


def test_impossible_event_tells_the_history() -> None:
    life = alive()
    with pytest.raises(
        InvalidTransition,
        match=r"is ALIVE, where 'placed' cannot happen.*placed -> STARTING, constructed -> ALIVE",
    ):
        life.placed(8)


@pytest.mark.parametrize("seed", range(20))
def test_no_call_is_lost_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    life = ActorLife(
        1, max_restarts=chance.choice([-1, 0, 3]), max_task_retries=chance.choice([-1, 0, 2])
    )
    open_calls: set[int] = set()
    sent: set[int] = set()
    workers = itertools.count(100)
    next_call = itertools.count()

    def carry_out(steps: object) -> None:
        for step in steps:  # type: ignore[attr-defined]
            if isinstance(step, FailCall):
                open_calls.remove(step.call_id)
                sent.discard(step.call_id)
            elif isinstance(step, SendCall):
                assert step.worker == life.worker
                sent.add(step.call_id)

    for _ in range(400):
        if chance.random() < 0.5:
            call = next(next_call)
            answer = life.call(call)
            if answer != REFUSED:
                open_calls.add(call)
            if answer >= 0:
                sent.add(call)
        elif life.state in (ActorState.PENDING, ActorState.RESTARTING):
            carry_out(life.placed(next(workers)))
        elif life.state is ActorState.STARTING:
            carry_out(life.worker_died() if chance.random() < 0.1 else life.constructed())
        elif sent and chance.random() < 0.9:
            call = chance.choice(sorted(sent))
            sent.remove(call)
            open_calls.remove(call)
            carry_out(life.finished(call))
        else:
            sent.clear()
            carry_out(life.worker_died())
        assert open_calls == {*life.waiting_calls(), *life.calls_in_flight()}
    carry_out(life.killed())
    assert not open_calls
