"""Criteria that end a training."""

import pytest

from syncline.cli.rl.stopping import STEPS, StopCriteria

RESULT = {
    "env_runners": {"episode_return_mean": 120.0},
    "num_env_steps_sampled_lifetime": 5000,
    "training_iteration": 5,
    "time_total_s": 10.0,
    "config": {"lr": 1.0},
}


def test_whichever_criterion_is_reached_first_ends_the_training():
    criteria = StopCriteria({"training_iteration": 9, "env_runners/episode_return_mean": 100})
    assert criteria.reached(RESULT) == "env_runners/episode_return_mean = 120 has reached 100"
    assert StopCriteria({"training_iteration": 6}).reached(RESULT) == ""
    assert StopCriteria({}).reached(RESULT) == ""


@pytest.mark.parametrize("name", ["episode_reward_mean", "episode_return_mean"])
def test_names_of_older_releases_work(name):
    assert StopCriteria({name: 120}).reached(RESULT)


def test_a_return_that_is_not_known_yet_does_not_stop():
    result = {"env_runners": {"episode_return_mean": float("nan")}}
    assert StopCriteria({"episode_return_mean": 1}).reached(result) == ""


def test_an_evaluation_need_not_be_in_every_result():
    assert StopCriteria({"evaluation/env_runners/episode_return_mean": 1}).reached(RESULT) == ""


def test_an_unknown_metric_is_an_error_with_the_nearest_name():
    with pytest.raises(ValueError, match="Did you mean 'training_iteration'"):
        StopCriteria({"training_iterations": 5}).reached(RESULT)


def test_a_criterion_needs_a_number():
    with pytest.raises(ValueError, match="training_iteration='many'"):
        StopCriteria({"training_iteration": "many"})


def test_remaining_time_is_that_of_the_criterion_which_comes_first():
    criteria = StopCriteria({"timesteps_total": 20_000, "training_iteration": 100})
    assert criteria.remaining(RESULT, now=100.0) is None  # no speed yet
    later = {**RESULT, "num_env_steps_sampled_lifetime": 10_000, "training_iteration": 10}
    found = criteria.remaining(later, now=110.0)
    assert (found.metric, found.share) == (STEPS, 0.5)
    assert found.left_s == pytest.approx(20.0)


def test_a_resumed_training_is_not_faster_than_it_is():
    criteria = StopCriteria({"training_iteration": 10})
    criteria.remaining(RESULT, now=0.0)
    found = criteria.remaining({**RESULT, "training_iteration": 6}, now=2.0)
    assert found.left_s == pytest.approx(8.0)


def test_returns_have_no_remaining_time():
    criteria = StopCriteria({"episode_return_mean": 475})
    criteria.remaining(RESULT, now=0.0)
    assert criteria.remaining(RESULT, now=5.0) is None
