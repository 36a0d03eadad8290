"""Seconds of an iteration by activity."""

import pytest

from syncline.rl.records.time_split import TimeSplit
from syncline.rl.runners.sample import Sample, SampleTimes


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def sample(runner, env_s, inference_s, total_s):
    times = SampleTimes(env_s=env_s, inference_s=inference_s, total_s=total_s)
    return Sample(fragments={}, episodes=[], env_steps=1, times=times, runner=runner)


def test_seconds_of_runners_are_averaged_and_those_of_the_algorithm_are_sums():
    clock = Clock()
    split = TimeSplit(clock)
    split.add_samples([sample(1, 2.0, 1.0, 4.0), sample(2, 4.0, 1.0, 5.0)])
    split.add_samples([sample(1, 2.0, 1.0, 3.0)])
    with split.measure("evaluation"):
        clock.now += 3.0
    split.add("learning", 2.0)
    clock.now += 7.0
    assert split.seconds(num_runners=2) == {
        "environment_s": pytest.approx(4.0),
        "inference_s": pytest.approx(1.5),
        "sampling_other_s": pytest.approx(0.5),
        "sampling_s": 0.0,
        "learning_s": 2.0,
        "evaluation_s": 3.0,
        "total_s": 10.0,
    }


def test_runners_that_delivered_nothing_count_in_the_average():
    split = TimeSplit(Clock())
    split.add_samples([sample(1, 4.0, 0.0, 4.0)])
    assert split.seconds(num_runners=4)["environment_s"] == 1.0


def test_a_new_iteration_begins_at_zero():
    clock = Clock()
    split = TimeSplit(clock)
    split.add_samples([sample(0, 1.0, 1.0, 2.0)])
    clock.now += 5.0
    split.begin()
    assert not any(split.seconds(num_runners=0).values())


def test_an_activity_is_counted_although_its_block_fails():
    clock = Clock()
    split = TimeSplit(clock)

    def fail():
        with split.measure("evaluation"):
            clock.now += 1.0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert split.seconds(0)["evaluation_s"] == 1.0
