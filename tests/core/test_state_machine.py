"""The kernel of the state machines: transitions, typed dispatch, timers."""

import pickle
from dataclasses import dataclass
from enum import Enum

import pytest

from syncline.core.state_machine import Dispatcher, InvalidTransition, Lifecycle, Timers, on


class Phase(Enum):
    IDLE = "idle"
    BUSY = "busy"
    DONE = "done"


TABLE = {
    Phase.IDLE: frozenset({Phase.BUSY}),
    Phase.BUSY: frozenset({Phase.IDLE, Phase.DONE}),
    Phase.DONE: frozenset(),
}


@dataclass(frozen=True)
class Start:
    number: int


@dataclass(frozen=True)
class Stop:
    pass


Event = Start | Stop


def test_transitions_follow_the_table_and_are_remembered():
    lifecycle = Lifecycle("the job", TABLE, Phase.IDLE)
    lifecycle.go(Phase.BUSY, "work came")
    assert not lifecycle.is_final
    lifecycle.go(Phase.DONE, "work ended")
    assert lifecycle.state is Phase.DONE
    assert lifecycle.is_final
    assert lifecycle.history == ("idle -> busy: work came", "busy -> done: work ended")


def test_invalid_transition_changes_nothing_and_carries_the_history():
    lifecycle = Lifecycle("the job", TABLE, Phase.IDLE)
    lifecycle.go(Phase.BUSY, "work came")
    lifecycle.go(Phase.DONE, "work ended")
    with pytest.raises(InvalidTransition, match="the job cannot go from done to busy") as caught:
        lifecycle.go(Phase.BUSY, "again")
    assert "busy -> done: work ended" in str(caught.value)
    assert caught.value.history == lifecycle.history
    assert lifecycle.state is Phase.DONE


def test_history_is_bounded_and_survives_pickling():
    lifecycle = Lifecycle("the job", TABLE, Phase.IDLE, history_length=3)
    for number in range(4):
        lifecycle.go(Phase.BUSY, f"work {number}")
        lifecycle.go(Phase.IDLE, f"end {number}")
    copy = pickle.loads(pickle.dumps(lifecycle))
    assert copy.state is Phase.IDLE
    assert copy.history == ("busy -> idle: end 2", "idle -> busy: work 3", "busy -> idle: end 3")


def test_each_message_class_reaches_its_handler():
    class Machine(Dispatcher[Event, list[str]], handles=Event):
        @on(Start)
        def _start(self, event: Start) -> list[str]:
            return [f"start {event.number}"]

        @on(Stop)
        def _stop(self, event: Stop) -> list[str]:
            return ["stop"]

    machine = Machine()
    assert machine.dispatch(Start(3)) == ["start 3"]
    assert machine.dispatch(Stop()) == ["stop"]
    with pytest.raises(TypeError, match=r"no handler of str: it handles \['Start', 'Stop'\]"):
        machine.dispatch("Start")


def test_a_missing_handler_is_an_error_when_the_class_is_defined():
    with pytest.raises(TypeError, match=r"Partial lacks handlers of \['Stop'\]"):

        class Partial(Dispatcher[Event, None], handles=Event):
            @on(Start)
            def _start(self, event: Start) -> None: ...


def test_a_second_or_foreign_handler_is_an_error_when_the_class_is_defined():
    with pytest.raises(TypeError, match="Twice has two handlers of Stop"):

        class Twice(Dispatcher[Stop, None], handles=Stop):
            @on(Stop)
            def _stop(self, event: Stop) -> None: ...

            @on(Stop)
            def _stop_again(self, event: Stop) -> None: ...

    with pytest.raises(TypeError, match=r"handles \['Start'\], which are not in its union"):

        class Foreign(Dispatcher[Stop, None], handles=Stop):
            @on(Stop)
            def _stop(self, event: Stop) -> None: ...

            @on(Start)
            def _start(self, event: Start) -> None: ...


def test_timers_expire_in_the_order_of_their_deadlines():
    now = 10.0
    timers = Timers(lambda: now)
    assert timers.wait_s() is None
    assert timers.pop_expired() is None
    timers.start("late", 5)
    timers.start("early", 1)
    timers.start("cancelled", 0.5)
    timers.cancel("cancelled")
    timers.cancel("unknown")
    assert timers.wait_s() == 1
    assert timers.pop_expired() is None
    now = 15.5
    assert timers.wait_s() == 0
    assert [timers.pop_expired(), timers.pop_expired(), timers.pop_expired()] == [
        "early",
        "late",
        None,
    ]


def test_starting_a_timer_again_moves_its_deadline():
    now = 0.0
    timers = Timers(lambda: now)
    timers.start("report", 1)
    now = 0.9
    timers.start("report", 1)
    now = 1.5
    assert timers.pop_expired() is None
    assert "report" in timers
    now = 2.0
    assert timers.pop_expired() == "report"
    assert "report" not in timers
