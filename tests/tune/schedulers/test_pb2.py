"""Parker-Holder, Nguyen, Roberts, Provably Efficient Online Hyperparameter Optimization with
Population-Based Bandits, NeurIPS 2020.
"""

import random

import numpy as np
import pytest

from syncline.tune.schedulers import PB2, TrialScheduler
from syncline.tune.schedulers.bandit import Kernel, fit, suggest, upper_bound
from tests.tune.schedulers.search_simulation import Lessons, World, make_trial, started

OBJECTIVE = {"metric": "score", "mode": "max", "time_attr": "training_iteration"}
BOUNDS = np.array([[0.0, 10.0]])


def observed(best, count=40, drift=0.0, seed=0):
    """Gains that are highest at `best`, which moves by `drift` per unit of time."""
    generator = np.random.default_rng(seed)
    times = np.sort(generator.uniform(0, 10, count))
    values = generator.uniform(0, 10, count)
    gains = -((values - best - drift * times) ** 2)
    return np.column_stack([times, np.zeros(count), values, gains])


def chosen(rows, time=10.0, pending=(), seed=0):
    pending = np.array(pending, dtype=float).reshape(-1, 1)
    return suggest(rows, np.array([time, 0.0]), BOUNDS, pending, np.random.default_rng(seed))[0]


@pytest.mark.parametrize("best", [1.0, 4.0, 8.5])
def test_the_model_finds_where_the_gain_is_highest(best):
    assert chosen(observed(best)) == pytest.approx(best, abs=1.0)


def test_recent_gains_count_more_where_the_optimum_moves():
    assert chosen(observed(2.0, drift=0.6)) == pytest.approx(8.0, abs=1.5)


def test_what_others_try_in_the_same_interval_is_avoided():
    """Desautels and others, JMLR 15, 2014: a pending point lowers the uncertainty around it and
    leaves the mean as it is.
    """
    inputs = np.array([[0.0, 0.0, 0.2], [1.0, 0.0, 0.9]])
    kernel, targets = Kernel(0.1, 0.1, 1e-4), np.array([-1.0, 1.0])
    here = np.array([[1.0, 0.0, 0.5]])
    alone = upper_bound(kernel, inputs, targets, inputs[:0], here)
    crowded = upper_bound(kernel, inputs, targets, here, here)
    mean = kernel(here, inputs) @ np.linalg.solve(
        kernel(inputs, inputs) + 1e-4 * np.eye(2), targets
    )
    assert mean < crowded < alone


def test_the_likeliest_kernel_knows_smooth_from_rough_and_steady_from_drifting():
    generator = np.random.default_rng(0)
    points = np.column_stack([generator.uniform(size=60), np.zeros(60), generator.uniform(size=60)])
    assert (
        fit(points, np.sin(2 * points[:, 2])).length_scale
        > fit(points, np.sin(40 * points[:, 2])).length_scale
    )
    assert fit(points, np.sin(2 * points[:, 2])).drift == 0


def test_without_anything_to_learn_from_the_choice_is_random_within_the_bounds():
    drawn = [chosen(np.empty((0, 4)), seed=seed) for seed in range(50)]
    assert 0 <= min(drawn) < 2
    assert 8 < max(drawn) <= 10
    same = np.array([[0, 0, 1.0, 5.0], [1, 0, 2.0, 5.0]])
    assert 0 <= chosen(same) <= 10


def test_choices_are_repeatable():
    assert chosen(observed(3.0), seed=4) == chosen(observed(3.0), seed=4)


def pb2(**options):
    return PB2(
        **{
            **OBJECTIVE,
            "perturbation_interval": 2,
            "hyperparam_bounds": {"lr": [0.0, 1.0]},
            **options,
        }
    )


def test_missing_hyperparameters_are_drawn_from_the_bounds_and_whole_numbers_stay_whole():
    world = World(pb2(hyperparam_bounds={"opt": {"lr": [0.5, 0.6]}, "batch": [8, 64]}))
    trial = world.add(make_trial(0, {"batch": 16}))
    assert 0.5 <= trial.config["opt"]["lr"] <= 0.6
    assert trial.evaluated_params == {"opt/lr": trial.config["opt"]["lr"]}
    other = world.add(make_trial(1, {"batch": 8, "opt": {"lr": 0.55}}))
    for each in (trial, other):
        world.start(each)
    world.report(other, 2, 0)
    world.report(trial, 2, 1)
    assert world.report(other, 4, 0) == TrialScheduler.NOOP
    world.settle()
    assert type(other.config["batch"]) is int
    assert 8 <= other.config["batch"] <= 64
    assert 0.5 <= other.config["opt"]["lr"] <= 0.6


def test_the_gain_over_an_interval_is_what_is_learned():
    world, [bad, good] = started(
        pb2(quantile_fraction=0.5), 2, config=lambda index: {"lr": 0.25 * (index + 1)}
    )
    world.report(bad, 2, 0.0)
    for time, score in ((2, 1.0), (4, 5.0), (7, 11.0)):
        world.report(good, time, score)
    assert world.report(bad, 4, -4.0) == TrialScheduler.NOOP
    assert world.scheduler._observed == [
        [2, 1.0, 0.5, 2.0],
        [4, 5.0, 0.5, 2.0],
        [2, 0.0, 0.25, -2.0],
    ]
    world.settle()
    world.start(bad)
    value = bad.config["lr"]
    world.report(bad, 9, 17.0)  # it went on from the donor's 11 at 7
    assert world.scheduler._observed[-1] == [7, 11.0, value, 3.0]


def test_custom_explore_fn_has_the_last_word():
    world, [bad, good] = started(
        pb2(custom_explore_fn=lambda config: {"lr": 0.125}, quantile_fraction=0.5),
        2,
        config=lambda index: {"lr": 1.0},
    )
    world.report(bad, 2, 0)
    world.report(good, 2, 1)
    world.report(bad, 4, 0)
    world.settle()
    assert bad.config == {"lr": 0.125}


def test_a_population_comes_to_the_learning_rate_that_gains_most():
    random.seed(1)
    world = Lessons(
        pb2(quantile_fraction=0.5),
        lambda config: 1 - (config["lr"] - 0.7) ** 2,
        count=6,
        at_once=6,
        length=50,
        config=lambda index: {"lr": 0.05 * index},
    ).run()
    assert sum(abs(trial.config["lr"] - 0.7) < 0.2 for trial in world.trials) >= 3


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (None, "PB2 needs `hyperparam_bounds`"),
        ({"lr": [1]}, r"hyperparam_bounds\['lr'\]=\[1\] must be \[min, max\]"),
        (
            {"opt": {"lr": [2, 1]}},
            r"hyperparam_bounds\['opt/lr'\]=\[2, 1\]: min must not exceed max",
        ),
    ],
)
def test_bounds_are_checked(bounds, message):
    with pytest.raises(ValueError, match=message):
        PB2(hyperparam_bounds=bounds)
