"""A restored algorithm continues as if it had never stopped: the same weights, bit for bit."""

import numpy as np
import pytest

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.dqn import DQNConfig
from syncline.rl.algorithms.mappo import MAPPOConfig
from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.algorithms.qmix import QMixConfig
from syncline.rl.algorithms.sac import SACConfig
from syncline.rl.algorithms.td3 import TD3Config
from syncline.rl.columns.trees import leaves
from syncline.rl.envs.examples.games import TwoStepGameWithGroupedAgents
from syncline.rl.envs.examples.multi_agent import MultiAgentCartPole

MODEL = {"fcnet_hiddens": [8], "fcnet_activation": "tanh"}


def ppo(**model):
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=3)
        .training(train_batch_size_per_learner=60, minibatch_size=20, num_epochs=2, lr=0.01)
        .rl_module(model_config={**MODEL, **model})
    )


def dqn():
    return (
        DQNConfig()
        .environment("CartPole-v1")
        .env_runners(rollout_fragment_length=4)
        .training(num_steps_sampled_before_learning_starts=20, n_step=2, lr=0.01)
        .training(target_network_update_freq=30)
        .rl_module(model_config=MODEL)
        .reporting(min_sample_timesteps_per_iteration=40)
    )


def rainbow():
    return dqn().training(noisy=True, num_atoms=11, v_min=0.0, v_max=20.0, n_step=(1, 3))


def sac():
    return (
        SACConfig()
        .environment("Pendulum-v1")
        .training(num_steps_sampled_before_learning_starts=20, train_batch_size_per_learner=16)
        .training(replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 500})
        .rl_module(model_config=MODEL)
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=30)
    )


def td3():
    return (
        TD3Config()
        .environment("Pendulum-v1")
        .training(num_steps_sampled_before_learning_starts=20, train_batch_size_per_learner=16)
        .training(replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 500})
        .rl_module(model_config=MODEL)
        .reporting(min_sample_timesteps_per_iteration=30)
    )


def two_agents():
    config = ppo().environment(MultiAgentCartPole, env_config={"num_agents": 2})
    return config.multi_agent(
        policies={"0", "1"}, policy_mapping_fn=lambda agent, episode, **_: str(agent)
    )


def mappo():
    return (
        MAPPOConfig()
        .environment(MultiAgentCartPole, env_config={"num_agents": 2})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=60, minibatch_size=20, num_epochs=2, lr=0.01)
        .rl_module(model_config=MODEL)
    )


def qmix():
    return (
        QMixConfig()
        .environment(TwoStepGameWithGroupedAgents)
        .env_runners(rollout_fragment_length=3)  # ends in the middle of an episode
        .training(num_steps_sampled_before_learning_starts=20, lr=0.01)
        .rl_module(model_config={"fcnet_hiddens": [8], "lstm_cell_size": 8})
        .reporting(min_sample_timesteps_per_iteration=45)
    )


CONFIGS = {
    "ppo": ppo,
    "ppo_lstm": lambda: ppo(use_lstm=True, lstm_cell_size=6, max_seq_len=5),
    "dqn": dqn,
    "rainbow": rainbow,
    "sac": sac,
    "td3": td3,
    "two_agents": two_agents,
    "mappo": mappo,
    "qmix": qmix,
}


def weights(algo):
    return [np.asarray(leaf) for leaf in leaves(algo.get_weights())]


def assert_equal(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", CONFIGS)
def test_restored_algorithm_ends_with_the_same_weights(name, tmp_path):
    config = CONFIGS[name]().debugging(seed=5)
    algo = config.build_algo()
    for _ in range(2):
        algo.train()
    path = algo.save_to_path(tmp_path / "checkpoint")
    saved = weights(algo)
    expected = [algo.train() for _ in range(3)]
    end = weights(algo)
    algo.stop()
    restored = Algorithm.from_checkpoint(path)
    assert_equal(weights(restored), saved)
    assert restored.training_iteration == 2
    found = [restored.train() for _ in range(3)]
    restored.stop()
    assert_equal(weights(restored), end)
    assert any((a != b).any() for a, b in zip(saved, end, strict=True))
    for one, other in zip(expected, found, strict=True):
        for key in ("num_env_steps_sampled_lifetime", "training_iteration"):
            assert one[key] == other[key]
        np.testing.assert_equal(
            one["env_runners"]["episode_return_mean"], other["env_runners"]["episode_return_mean"]
        )


@pytest.mark.parametrize("name", CONFIGS)
def test_same_seed_gives_the_same_weights_and_another_one_others(name):
    def end(seed):
        algo = CONFIGS[name]().debugging(seed=seed).build_algo()
        for _ in range(2):
            algo.train()
        algo.stop()
        return weights(algo)

    first = end(1)
    assert_equal(first, end(1))
    assert any((a != b).any() for a, b in zip(first, end(2), strict=True))
