"""Algorithms whose runners are special, with runners in processes of their own."""

import numpy as np
import pytest

import syncline
from syncline.rl.algorithms.alpha_zero import AlphaZeroConfig
from syncline.rl.algorithms.mappo import MAPPOConfig
from syncline.rl.algorithms.qmix import QMixConfig
from syncline.rl.envs.examples.games import TicTacToe, TwoStepGameWithGroupedAgents
from syncline.rl.envs.examples.multi_agent import MultiAgentCartPole

pytestmark = pytest.mark.processes

MODEL = {"fcnet_hiddens": [8], "use_gru": False}


@pytest.fixture(scope="module", autouse=True)
def engine():
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


def qmix():
    return (
        QMixConfig()
        .environment(TwoStepGameWithGroupedAgents)
        .training(num_steps_sampled_before_learning_starts=20)
        .reporting(min_sample_timesteps_per_iteration=100)
    )


def mappo():
    return (
        MAPPOConfig()
        .environment(MultiAgentCartPole, env_config={"num_agents": 2})
        .training(train_batch_size=200, minibatch_size=100, num_epochs=1)
    )


def alpha_zero():
    return (
        AlphaZeroConfig()
        .environment(TicTacToe, env_config={"action_mask": True})
        .env_runners(rollout_fragment_length=30, num_envs_per_env_runner=3)
        .training(mcts_config={"num_simulations": 3}, train_batch_size=60, minibatch_size=60)
        .training(num_epochs=1, num_steps_sampled_before_learning_starts=0)
    )


@pytest.mark.parametrize("make", [qmix, mappo, alpha_zero])
def test_two_runners_sample_and_get_the_new_weights(make, tmp_path):
    config = make().env_runners(num_env_runners=2).rl_module(model_config=MODEL)
    algo = config.debugging(seed=1).build_algo()
    for _ in range(2):
        result = algo.train()
    assert result["env_runners"]["num_episodes_lifetime"] > 0
    assert result["learners"]["default_policy"]["num_module_steps_trained_lifetime"] > 0
    ours = algo.get_weights()["default_policy"]
    theirs = algo.env_runner_group.foreach_env_runner(
        lambda runner: runner.module["default_policy"].get_state(inference_only=True)
    )
    assert len(theirs) == 2
    for state in theirs:
        assert state
        for name, leaf in state.items():
            np.testing.assert_array_equal(leaf, ours[name])
    algo.restore_from_path(algo.save_to_path(tmp_path / "checkpoint"))
    algo.train()
    algo.stop()
