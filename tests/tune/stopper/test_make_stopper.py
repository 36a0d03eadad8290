"""What `stop=` may be, and what is said of the rest."""

import numpy as np
import pytest

from syncline.tune.stopper import (
    CombinedStopper,
    DictionaryStopper,
    MaximumIterationStopper,
    NoopStopper,
    TrialPlateauStopper,
    make_stopper,
    unknown_keys_message,
)


@pytest.mark.parametrize("nothing", [None, {}, []])
def test_no_criterion_stops_nothing(nothing):
    assert isinstance(make_stopper(nothing), NoopStopper)


def test_a_stopper_is_taken_as_it_is():
    stopper = MaximumIterationStopper(3)
    assert make_stopper(stopper) is stopper


@pytest.mark.parametrize(
    ("criteria", "result", "stops"),
    [
        ({"accuracy": 0.9}, {"accuracy": 0.89}, False),
        ({"accuracy": 0.9}, {"accuracy": 0.9}, True),
        ({"accuracy": 0.9}, {"accuracy": np.float32(0.95)}, True),
        (
            {"accuracy": 0.9, "training_iteration": 3},
            {"accuracy": 0, "training_iteration": 3},
            True,
        ),
        ({"eval/accuracy": 0.9}, {"eval": {"accuracy": 0.95}}, True),
        ({"eval/accuracy": 0.9}, {"eval/accuracy": 0.95}, True),
        ({"eval/accuracy": 0.9}, {"eval": 1}, False),
        ({"eval": {"accuracy": 0.9}}, {"eval": {"accuracy": 0.95}}, True),
        ({"eval": {"a": {"b": 1}, "c": 5}}, {"eval": {"a": {"b": 0}, "c": 5}}, True),
        ({"eval": {"a": {"b": 1}, "c": 5}}, {"eval": {"a": {"b": 0}, "c": 4}}, False),
        ({"done": True}, {"done": True}, True),
        ({"done": True}, {"done": False}, False),
        ({"done": True}, {"done": np.bool_(True)}, True),
        ({"loss": 1}, {"loss": float("nan")}, False),
        ({"loss": 1}, {"loss": None}, False),
        ({"loss": 1}, {"loss": "2"}, False),
        ({"loss": 1}, {"loss": np.array([2, 3])}, False),
        ({"loss": 1}, {}, False),
    ],
)
def test_a_dictionary_stops_at_a_value_that_is_large_enough(criteria, result, stops):
    stopper = make_stopper(criteria)
    assert isinstance(stopper, DictionaryStopper)
    assert stopper("a", result) is stops
    assert not stopper.stop_all()


def test_a_function_is_asked():
    stopper = make_stopper(lambda trial_id, result: result["loss"] > 1)
    assert stopper("a", {"loss": 2}) is True
    assert stopper("a", {"loss": 1}) is False


def test_an_object_with_the_methods_of_a_stopper_is_one():
    class Patience:
        def __init__(self):
            self.left = 2

        def __call__(self, trial_id, result):
            self.left -= 1
            return result["loss"] > 1

        def stop_all(self):
            return self.left == 0

    stopper = make_stopper(Patience())
    assert (stopper("a", {"loss": 0}), stopper.stop_all()) == (False, False)
    assert (stopper("a", {"loss": 2}), stopper.stop_all()) == (True, True)


def test_of_a_list_one_suffices():
    stopper = make_stopper(
        [{"loss": 5}, MaximumIterationStopper(10), lambda trial_id, result: trial_id == "b"]
    )
    assert isinstance(stopper, CombinedStopper)
    assert not stopper("a", {"loss": 1, "training_iteration": 1})
    assert stopper("a", {"loss": 5, "training_iteration": 1})
    assert stopper("b", {"loss": 1, "training_iteration": 1})


@pytest.mark.parametrize(
    ("stop", "kind", "message"),
    [
        (
            MaximumIterationStopper,
            TypeError,
            r"must be an instance: `stop=MaximumIterationStopper\(…\)`",
        ),
        (10, TypeError, "training_iteration"),
        ("loss", TypeError, "dictionary"),
        ({"loss": "low"}, TypeError, "Give a number"),
        ({"loss": None}, TypeError, "Give a number"),
        ({"loss": float("nan")}, TypeError, "Give a number"),
        ({3: 1}, TypeError, "name of a metric"),
        ({"done": False}, ValueError, "end each trial with its first result"),
        ({"eval": {"loss": "low"}}, TypeError, "Give a number"),
        (lambda: True, TypeError, "two positional parameters"),
        ([{"loss": 1}, 3], TypeError, "unsupported type int"),
    ],
)
def test_what_cannot_stop_anything_is_refused_with_the_remedy(stop, kind, message):
    with pytest.raises(kind, match=message):
        make_stopper(stop)


def test_keys_that_no_result_has_are_named_with_the_nearest_ones():
    result = {
        "accuracy": 0.5,
        "eval": {"loss": 1.0},
        "training_iteration": 1,
        "config": {"lr": 0.1},
    }
    message = unknown_keys_message(
        make_stopper([{"acuracy": 0.9, "eval/los": 1}, TrialPlateauStopper("score")]), result
    )
    assert message is not None
    for part in (
        "'acuracy', 'eval/los', 'score', which",
        " Did you mean 'accuracy'? Did you mean 'eval/loss'? ",
        "'accuracy', 'eval/loss',",
    ):
        assert part in message
    assert "config" not in message


def test_nothing_is_said_of_keys_that_are_there():
    assert (
        unknown_keys_message(
            make_stopper({"eval/loss": 1, "training_iteration": 3}),
            {"eval": {"loss": 0}, "training_iteration": 1},
        )
        is None
    )
    assert unknown_keys_message(NoopStopper(), {}) is None
