"""The median stopping rule of Golovin and others, Google Vizier, KDD 2017, section 3.2.1."""

import math
import random
import statistics
from array import array

import pytest

from syncline.tune.schedulers import MedianStoppingRule, TrialScheduler
from syncline.tune.schedulers.median_stopping_rule import RunningAverages, rounded_age
from tests.tune.schedulers.search_simulation import World, started

GOES_ON, STOPS, WAITS = TrialScheduler.CONTINUE, TrialScheduler.STOP, TrialScheduler.PAUSE


def rule(**options):
    defaults = {
        "metric": "score",
        "mode": "max",
        "time_attr": "training_iteration",
        "grace_period": 1,
        "min_samples_required": 1,
    }
    return MedianStoppingRule(**{**defaults, **options})


def test_stops_a_trial_whose_best_is_below_the_median_of_the_others_averages():
    """Three trials average 2, 4 and 6 up to step 3; the median is 4. A trial goes on with a best of
    4, and is stopped with less; its best result counts, not its latest.
    """
    world, trials = started(rule(), 5)
    for trial, level in zip(trials, (2, 4, 6), strict=False):
        for step, offset in enumerate((-1, 0, 1), start=1):
            world.finish(trial, step, level + offset) if step == 3 else world.report(
                trial, step, level + offset
            )
    good, bad = trials[3:]
    assert world.report(good, 1, 4) == GOES_ON
    assert world.report(bad, 3, 3.9) == STOPS
    assert world.report(good, 3, 0) == GOES_ON
    assert "num_stopped=1" in world.scheduler.debug_string()


def fill(world, trials, levels, steps=3):
    for trial, level in zip(trials, levels, strict=False):
        for step in range(1, steps + 1):
            world.scheduler.on_trial_result(
                world, trial, {"training_iteration": step, "score": level}
            )


def test_low_is_good_if_the_mode_says_so():
    world, trials = started(rule(mode="min", min_samples_required=3), 5)
    fill(world, trials, (1, 2, 3))
    assert world.report(trials[3], 2, 2.5) == STOPS
    assert world.report(trials[4], 2, 1.5) == GOES_ON


def test_nobody_is_stopped_in_the_grace_period_nor_counts_with_results_from_it():
    world, trials = started(rule(grace_period=3, min_samples_required=2), 3)
    for trial in trials[:2]:
        assert [world.report(trial, step, 100) for step in (1, 2)] == [GOES_ON, GOES_ON]
        world.report(trial, 3, 1)
    assert world.report(trials[2], 2, -50) == GOES_ON
    assert world.report(trials[2], 3, 2) == GOES_ON


def test_with_too_few_others_a_trial_goes_on_or_gives_way_to_one_that_waits():
    world, [a, b] = started(rule(min_samples_required=3, min_time_slice=2), 2)
    assert world.report(a, 1, 0) == GOES_ON
    waiting = world.add()
    assert world.report(a, 2, 0) == WAITS
    assert world.choose() is waiting
    world.start(waiting)
    assert world.choose() is a
    world.start(a)
    world.add()
    assert [world.report(a, step, 0) for step in (3, 4, 5)] == [GOES_ON, GOES_ON, WAITS]
    assert world.report(b, 1, 0) == WAITS


def test_a_soft_stop_pauses_and_the_trial_runs_when_no_other_waits():
    world, trials = started(rule(hard_stop=False), 4)
    fill(world, trials, (5, 6))
    bad, yielding = trials[2:]
    assert world.report(bad, 2, 1) == WAITS
    world.pause_trial(yielding)
    world.scheduler._preempted[yielding.trial_id] = None
    assert world.choose() is yielding
    world.start(yielding)
    assert world.choose() is bad
    world.start(bad)
    assert world.report(bad, 3, 0) == GOES_ON


def test_averages_that_are_not_finite_count_for_nothing():
    world, trials = started(rule(min_samples_required=2), 5)
    fill(world, trials, (1, float("nan"), 3, -math.inf))
    assert world.report(trials[4], 2, 1.5) == STOPS  # below the median 2 of 1 and 3


@pytest.mark.parametrize("unit", [1, 0.37, 4000])
def test_medians_are_those_that_come_of_walking_through_all_results(unit):
    """Ages are rounded down to 7 digits, so the walk rounds them too; trials report at different
    times, and skip some.
    """
    generator = random.Random(5)
    averages, history = RunningAverages(), {}
    times = {f"t{i}": 0.0 for i in range(12)}
    for _ in range(1500):
        trial = generator.choice(list(times))
        times[trial] += unit * generator.choice([1, 1, 2, 5])
        time, score = times[trial], generator.gauss(0, 1)
        others = averages.of_others(trial, time)
        averages.add(trial, time, score)
        expected = [
            statistics.fmean(value for at, value in past if rounded_age(at) <= rounded_age(time))
            for other, past in history.items()
            if other != trial
            and rounded_age(past[-1][0]) >= rounded_age(time) >= rounded_age(past[0][0])
        ]
        history.setdefault(trial, []).append((time, score))
        assert others.count == len(expected)
        assert others.median == pytest.approx(
            statistics.median(expected) if expected else math.nan, nan_ok=True
        )


def test_ages_are_exact_up_to_128_and_never_out_of_order():
    assert len({rounded_age(time) for time in range(129)}) == 129
    times = [0, 1e-9, 0.3, 1, 2.5, 100, 128, 1000, 1e9]
    assert [rounded_age(time) for time in times] == sorted(rounded_age(time) for time in times)
    assert len({rounded_age(time) for time in range(60, 100_000)}) < 800


def test_going_back_to_a_checkpoint_does_not_count_results_twice():
    averages = RunningAverages()
    for time, score in ((1, 1.0), (2, 3.0), (1, 100.0)):
        averages.add("a", time, score)
    assert averages.of_others("b", 2).median == 2
    assert averages.of_others("b", 1).median == 1
    assert averages.of_others("a", 1).count == 0


def test_a_result_costs_the_same_with_many_trials_that_have_ended():
    """The averages kept at an age are touched by binary search only: counted, not timed."""
    touched = 0

    class Counted(array):
        def __getitem__(self, index):
            nonlocal touched
            touched += 1
            return super().__getitem__(index)

        def __iter__(self):
            raise AssertionError("a result walked through all trials")

    averages = RunningAverages()
    for trial in range(3000):
        for time in (1, 2, 3):
            averages.add(f"t{trial}", time, trial)
    averages._averages = {age: Counted("d", kept) for age, kept in averages._averages.items()}
    averages._trials = _Unwalkable(averages._trials)
    assert averages.of_others("new", 3).median == 1499.5
    averages.add("new", 3, 5.0)
    assert 0 < touched < 40


class _Unwalkable(dict):
    def values(self):
        raise AssertionError("a result walked through all trials")


def test_a_whole_search_stops_the_worse_half_early():
    world = World(
        rule(min_samples_required=3),
        count=30,
        at_once=3,
        length=20,
        score=lambda trial, _: -trial.index,
    ).run()
    longest = world.longest()
    assert longest[0] == 20
    assert all(longest[index] == 1 for index in range(6, 30))
