"""Several runners: the same weights as one, one table in memory; and learning CartPole."""

import numpy as np
import pytest

import syncline
from syncline.rl.algorithms.ars import ARSConfig
from syncline.rl.algorithms.es import ESConfig


def es(num_env_runners):
    return (
        ESConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=num_env_runners, num_envs_per_env_runner=4)
        .training(episodes_per_batch=20, train_batch_size=1, noise_size=100_000, stepsize=0.03)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=3)
    )


@pytest.mark.processes
def test_weights_do_not_depend_on_the_number_of_runners():
    syncline.init(num_cpus=2)
    try:
        ends = []
        for count in (0, 1, 2):
            algo = es(count).build_algo()
            for _ in range(2):
                algo.train()
            ends.append(algo.get_module().flat_weights())
            if count == 2:
                views = algo.env_runner_group.foreach_env_runner(
                    lambda runner: (runner._table.flags.owndata, runner._table[:5].tolist())
                )
                assert views == [(False, algo.noise[:5].tolist())] * 2  # pages of one segment
            algo.stop()
        np.testing.assert_array_equal(ends[0], ends[1])
        np.testing.assert_array_equal(ends[0], ends[2])
    finally:
        syncline.shutdown()


def learn(config, iterations):
    algo = config.debugging(seed=1).build_algo()
    best = 0.0
    for _ in range(iterations):
        best = max(best, algo.train()["env_runners"]["episode_return_mean"])
        if best >= 475:
            break
    algo.stop()
    return best


@pytest.mark.long
def test_es_learns_cartpole():
    config = (
        ESConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .training(episodes_per_batch=50, train_batch_size=1, noise_size=1_000_000)
        .training(stepsize=0.03, noise_stdev=0.05)
        .rl_module(model_config={"fcnet_hiddens": [16]})
    )
    assert learn(config, 80) >= 475


@pytest.mark.long
def test_ars_learns_cartpole():
    config = (
        ARSConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .training(num_rollouts=16, rollouts_used=8, noise_size=1_000_000)
        .training(sgd_stepsize=0.05, noise_stdev=0.05)
    )
    assert learn(config, 60) >= 475
