"""When each stopper says stop, and that it says the same after being pickled."""

import pickle
from datetime import timedelta

import pytest

from syncline.tune.stopper import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
)


def feed(stopper, values, trial_id="a", key="loss"):
    """What the stopper says to each value."""
    return [stopper(trial_id, {key: value}) for value in values]


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_noop_stops_nothing():
    stopper = NoopStopper()
    assert not stopper("a", {"done": True})
    assert not stopper.stop_all()


def test_a_stopper_without_its_methods_cannot_be_made():
    with pytest.raises(TypeError, match="stop_all"):
        type("Half", (Stopper,), {"__call__": lambda self, trial_id, result: False})()


@pytest.mark.parametrize("repeated", [0, 3])
def test_maximum_iteration_counts_iterations_not_results(repeated):
    stopper = MaximumIterationStopper(max_iter=5)
    iterations = [1, 2, 3, 4, *range(5 - repeated, 5), 5]
    assert feed(stopper, iterations, key="training_iteration") == [False] * (
        len(iterations) - 1
    ) + [True]


def test_maximum_iteration_counts_results_that_say_nothing_per_trial():
    stopper = MaximumIterationStopper(max_iter=2)
    assert feed(stopper, [0], "a") + feed(stopper, [0, 0], "b") + feed(stopper, [0], "a") == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "3"])
def test_maximum_iteration_refuses_what_no_trial_can_reach(wrong):
    with pytest.raises(ValueError, match="max_iter"):
        MaximumIterationStopper(wrong)


def test_function_stopper_asks_the_function():
    stopper = FunctionStopper(lambda trial_id, result: trial_id == "a" and result["loss"] < 1)
    assert feed(stopper, [2, 0.5], "a") == [False, True]
    assert feed(stopper, [0.5], "b") == [False]
    assert not stopper.stop_all()


def test_function_stopper_refuses_a_function_of_another_shape():
    with pytest.raises(TypeError, match="function\\(trial_id, result\\)"):
        FunctionStopper(lambda result: True)


def test_is_valid_function_tells_functions_from_stoppers():
    assert FunctionStopper.is_valid_function(lambda trial_id, result: True)
    assert not FunctionStopper.is_valid_function(NoopStopper())
    assert not FunctionStopper.is_valid_function({"a": 1})
    assert not FunctionStopper.is_valid_function(NoopStopper)


def test_trial_plateau_stops_where_the_latest_values_lie_close_together():
    stopper = TrialPlateauStopper("loss", std=0.1, num_results=3, grace_period=0)
    assert feed(stopper, [5, 1, 1.01, 1.02]) == [False, False, False, True]


def test_trial_plateau_looks_at_each_trial_alone_and_waits_for_the_grace_period():
    stopper = TrialPlateauStopper("loss", std=0.1, num_results=2, grace_period=4)
    assert feed(stopper, [1, 1, 1], "a") == [False] * 3
    assert feed(stopper, [1], "b") == [False]
    assert feed(stopper, [1], "a") == [True]


@pytest.mark.parametrize(
    ("mode", "threshold", "bad", "good"), [("max", 0.9, 0.5, 0.95), ("min", 0.0, 0.5, -0.1)]
)
def test_trial_plateau_stops_only_beyond_its_threshold(mode, threshold, bad, good):
    stopper = TrialPlateauStopper(
        "loss", num_results=2, grace_period=2, metric_threshold=threshold, mode=mode
    )
    assert feed(stopper, [bad] * 3, "a") == [False] * 3
    assert feed(stopper, [good] * 2, "b") == [False, True]


def test_trial_plateau_needs_a_mode_for_a_threshold_of_zero_too():
    with pytest.raises(ValueError, match="mode"):
        TrialPlateauStopper("loss", metric_threshold=0.0)


def test_a_missing_metric_is_no_plateau():
    stopper = TrialPlateauStopper("loss", num_results=2, grace_period=2)
    assert feed(stopper, [1, float("nan"), 1, None, 1, "x", 1, 1]) == [False] * 7 + [True]


def test_plateaus_of_nested_metrics_are_found():
    stopper = TrialPlateauStopper("eval/loss", num_results=2, grace_period=2)
    assert feed(stopper, [{"loss": 1}, {"loss": 1}], key="eval") == [False, True]


def test_experiment_plateau_stops_everything_when_the_best_values_lie_close_together():
    stopper = ExperimentPlateauStopper("loss", std=0.1, top=3, mode="min")
    assert feed(stopper, [9, 1, 1.01, 7, 1.02]) == [False, False, False, False, True]
    assert stopper.stop_all()


def test_experiment_plateau_waits_as_long_as_it_has_patience_and_begins_anew_after_a_better_value():
    stopper = ExperimentPlateauStopper("score", std=0.1, top=2, mode="max", patience=3)
    assert feed(stopper, [1, 1, 1], key="score") == [False, False, False]
    assert feed(stopper, [5, 5, 5, 5], key="score") == [False, False, False, True]


def test_experiment_plateau_passes_over_results_without_the_metric():
    stopper = ExperimentPlateauStopper("loss", std=0.1, top=2)
    assert feed(stopper, [1, float("nan"), None, 1]) == [False, False, False, True]


@pytest.mark.parametrize(
    "wrong", [{"mode": "best"}, {"top": 1}, {"top": 2.0}, {"patience": -1}, {"std": 0}]
)
def test_experiment_plateau_refuses_what_is_out_of_range(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ExperimentPlateauStopper("loss", **wrong)


@pytest.mark.parametrize("timeout", [60, 60.0, timedelta(minutes=1)])
def test_timeout_counts_from_the_first_look(timeout):
    clock = Clock()
    stopper = TimeoutStopper(timeout, clock=clock)
    clock.now += 1000
    assert not stopper.stop_all()
    clock.now += 59
    assert not stopper.stop_all()
    clock.now += 1
    assert stopper.stop_all()
    assert not stopper("a", {})


def test_timeout_goes_on_where_it_was_after_a_restore():
    clock = Clock()
    stopper = TimeoutStopper(60, clock=clock)
    stopper.stop_all()
    clock.now += 40
    assert not stopper.stop_all()
    state = pickle.loads(pickle.dumps(stopper.__getstate__()))
    restored = TimeoutStopper.__new__(TimeoutStopper)
    restored.__dict__.update(state)
    assert restored.remaining_s == 20
    restored._clock = clock
    clock.now += 10_000  # nothing ran
    assert not restored.stop_all()
    clock.now += 21
    assert restored.stop_all()


def test_pickled_timeout_holds_no_clock_and_no_reading_of_one():
    stopper = TimeoutStopper(60, clock=lambda: 5.0)
    stopper.stop_all()
    restored = pickle.loads(pickle.dumps(stopper))
    assert restored._last_check is None
    assert not restored.stop_all()
    restored.count_time(59.5)
    assert restored.remaining_s < 0.6
    assert not CombinedStopper(restored).stop_all()
    CombinedStopper(restored).count_time(0.6)
    assert restored.stop_all()


@pytest.mark.parametrize("wrong", ["60", None, -1, float("nan"), True])
def test_timeout_refuses_what_is_no_time(wrong):
    with pytest.raises(ValueError, match="timeout"):
        TimeoutStopper(wrong)


def test_combined_stops_when_one_does_and_shows_every_result_to_all():
    counting = MaximumIterationStopper(2)
    stopper = CombinedStopper(
        FunctionStopper(lambda trial_id, result: result["loss"] < 0), counting
    )
    assert feed(stopper, [-1]) == [True]
    assert feed(stopper, [1]) == [
        True
    ]  # the second result of this trial for `counting`, though the first had stopped it already
    assert not stopper.stop_all()


def test_combined_refuses_what_is_no_stopper():
    with pytest.raises(TypeError, match="FunctionStopper"):
        CombinedStopper(lambda trial_id, result: True)


@pytest.mark.parametrize(
    "make",
    [
        lambda: MaximumIterationStopper(6),
        lambda: TrialPlateauStopper("loss", num_results=3, grace_period=4),
        lambda: ExperimentPlateauStopper("loss", top=4, patience=2),
    ],
)
def test_pickled_in_the_middle_stoppers_decide_the_same(make):
    values = [3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    whole, first = make(), make()
    expected = feed(whole, values)
    assert True in expected
    got = feed(first, values[:3])
    got += feed(pickle.loads(pickle.dumps(first)), values[3:])
    assert got == expected
