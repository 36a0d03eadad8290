"""Calls of callbacks: hooks, order, and failures."""

import logging

import pytest

from syncline.tune.callback import Callback, CallbackList

HOOKS = [name for name in vars(Callback) if name.startswith("on_")]


def recording(calls, name="one"):
    """Return a callback that records every hook."""
    methods = {
        hook: (lambda self, _hook=hook, **info: calls.append((name, _hook, info))) for hook in HOOKS
    }
    return type("Recording", (Callback,), methods)()


class Failing(Callback):
    def __init__(self):
        self.calls = 0

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.calls += 1
        raise RuntimeError(f"call {self.calls}")


def result_of(number):
    return {"iteration": number, "trials": [], "trial": "t", "result": {"loss": number}}


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_reaches_all_callbacks_in_order_with_its_arguments(hook):
    calls = []
    callbacks = CallbackList([recording(calls, "one"), Callback(), recording(calls, "two")])
    trials = []
    getattr(callbacks, hook)(iteration=1, trials=trials, further=2)
    assert calls == [
        ("one", hook, {"iteration": 1, "trials": trials, "further": 2}),
        ("two", hook, {"iteration": 1, "trials": trials, "further": 2}),
    ]
    assert calls[0][2]["trials"] is trials


def test_a_hook_set_on_the_instance_counts_as_overridden():
    callback, seen = Callback(), []
    callback.on_step_end = lambda **info: seen.append(info["iteration"])
    CallbackList([callback]).on_step_end(iteration=3, trials=[])
    assert seen == [3]


def test_a_failing_callback_is_logged_once_and_the_others_go_on(caplog):
    calls, failing = [], Failing()
    callbacks = CallbackList([failing, recording(calls)])
    with caplog.at_level(logging.ERROR, "syncline"):
        for number in range(3):
            callbacks.on_trial_result(**result_of(number))
    assert failing.calls == 3
    assert len(calls) == 3
    assert len(caplog.records) == 1
    assert "Failing.on_trial_result" in caplog.text
    assert "call 1" in caplog.text
    assert "Traceback" in caplog.text


def test_an_interrupt_in_a_callback_is_not_swallowed():
    callback = Callback()
    callback.on_step_begin = lambda **info: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        CallbackList([callback]).on_step_begin(iteration=0, trials=[])


def test_setup_may_refuse_to_start():
    class Refusing(Callback):
        def setup(self, **info):
            raise ValueError("no key")

    with pytest.raises(ValueError, match="no key"):
        CallbackList([Refusing()]).setup(num_samples=1)


def test_setup_gets_its_arguments_unless_it_takes_none():
    seen = []

    class Newer(Callback):
        def setup(self, stop=None, num_samples=None, total_num_samples=None, **info):
            seen.append((stop, num_samples, total_num_samples, info))

    class Older(Callback):
        def setup(self):
            seen.append("older")

    CallbackList([Newer(), Older()]).setup(stop="s", num_samples=2, total_num_samples=4, further=1)
    assert seen == [("s", 2, 4, {"further": 1}), "older"]


@pytest.mark.parametrize("wrong", [Callback, "csv", None])
def test_values_that_are_no_callbacks_are_refused(wrong):
    with pytest.raises(TypeError, match="instances of syncline.tune.Callback"):
        CallbackList([wrong])


class Counting(Callback):
    def __init__(self, count=0):
        self.count = count

    def get_state(self):
        return {"count": self.count} if self.count else None

    def set_state(self, state):
        self.count = state["count"]


def test_states_find_their_callbacks_in_a_changed_list():
    state = CallbackList([Counting(3), Callback(), Counting(5)]).get_state()
    restored = [Callback(), Counting(), Failing(), Counting(), Counting()]
    CallbackList(restored).set_state(state)
    assert [one.count for one in restored if isinstance(one, Counting)] == [3, 5, 0]


def test_without_states_there_is_none():
    assert CallbackList([Callback(), Counting()]).get_state() is None


def test_a_state_that_cannot_be_had_is_left_out(caplog):
    class Broken(Callback):
        def get_state(self):
            raise RuntimeError("no state")

    with caplog.at_level(logging.ERROR, "syncline"):
        assert CallbackList([Broken(), Counting(1)]).get_state() == {
            f"{Counting.__qualname__}-0": {"count": 1}
        }
    assert "Broken.get_state" in caplog.text
