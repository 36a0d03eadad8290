"""DreamerV3 as an algorithm: rhythm, metrics, exact resume, errors; and that it learns."""

import gymnasium as gym
import numpy as np
import pytest
import torch

import syncline
from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.dreamerv3 import DreamerV3, DreamerV3Config
from syncline.rl.algorithms.dreamerv3.sequence_replay import SequenceReplay
from syncline.rl.columns.trees import leaves
from syncline.rl.envs.examples.image_grid import ImageGrid


def small(env="CartPole-v1", **training):
    options = {
        "model_size": "nano",
        "batch_size_B": 3,
        "batch_length_T": 6,
        "horizon_H": 3,
        "training_ratio": 9,
        "world_model_lr": 1e-2,
        "actor_lr": 1e-2,
        "critic_lr": 1e-2,
        "replay_buffer_config": {"capacity": 300},
        **training,
    }
    return (
        DreamerV3Config()
        .environment(env)
        .env_runners(num_envs_per_env_runner=2)
        .training(**options)
        .debugging(seed=3)
        .reporting(min_sample_timesteps_per_iteration=12)
    )


def weights(algo):
    return [np.asarray(leaf) for leaf in leaves(algo.learner_group.get_state())
            if isinstance(leaf, np.ndarray)]  # fmt: skip


def test_updates_follow_the_training_ratio_and_have_rllibs_metrics():
    algo = small().build_algo()
    for _ in range(4):
        result = algo.train()
    learner = result["learners"]["default_policy"]
    steps = result["num_env_steps_sampled_lifetime"]
    counted = steps - 16  # the steps that fill the buffer, except the last two of them
    assert learner["num_module_steps_trained_lifetime"] == counted * 9 // 18 * 18
    assert result["actual_training_ratio"] == pytest.approx(9, rel=0.1)
    for name in (
        "WORLD_MODEL_L_total",
        "WORLD_MODEL_L_decoder",
        "WORLD_MODEL_L_reward",
        "WORLD_MODEL_L_continue",
        "WORLD_MODEL_L_dynamics",
        "WORLD_MODEL_L_representation",
        "CRITIC_L_total",
        "ACTOR_L_total",
        "ACTOR_action_entropy",
        "WORLD_MODEL_gradients_global_norm",
        "ACTOR_gradients_global_norm",
        "CRITIC_gradients_global_norm",
    ):
        assert np.isfinite(learner[name]), name
    algo.stop()


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", ImageGrid])
def test_every_part_learns_from_its_own_loss(env):
    algo = small(env).build_algo()
    learner = algo.learner_group._learner
    before = {
        name: each.clone() for name, each in learner.module["default_policy"].named_parameters()
    }
    for _ in range(3):
        algo.train()
    module = learner.module["default_policy"]
    unchanged = [
        name
        for name, each in module.named_parameters()
        if torch.equal(each, before[name]) and not name.startswith("slow_critic")
    ]
    assert unchanged == []
    slow, fast = module.slow_critic[0].weight, module.critic[0].weight
    assert not torch.equal(slow, before["slow_critic.0.weight"])
    assert not torch.equal(slow, fast)
    algo.stop()


def test_parts_can_be_trained_alone():
    algo = small(train_critic=False, train_actor=False).build_algo()
    algo.train()
    result = algo.train()["learners"]["default_policy"]
    assert "WORLD_MODEL_L_total" in result
    assert "CRITIC_L_total" not in result
    module = algo.get_module()
    assert not module.critic[-1].weight.any()
    algo.stop()


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_restored_algorithm_ends_with_the_same_weights(env, tmp_path):
    algo = small(env).build_algo()
    for _ in range(2):
        algo.train()
    path = algo.save_to_path(tmp_path / "checkpoint")
    expected = [algo.train() for _ in range(2)]
    end = weights(algo)
    algo.stop()
    restored = Algorithm.from_checkpoint(path)
    found = [restored.train() for _ in range(2)]
    for one, other in zip(weights(restored), end, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(expected, found, strict=True):
        assert one["num_env_steps_sampled_lifetime"] == other["num_env_steps_sampled_lifetime"]
        assert one["actual_training_ratio"] == other["actual_training_ratio"]
    restored.stop()


def test_sequences_may_begin_in_stored_states():
    algo = small(use_stored_states=True).build_algo()
    for _ in range(2):
        result = algo.train()
    assert np.isfinite(result["learners"]["default_policy"]["WORLD_MODEL_L_total"])
    (buffer,) = algo.buffers.values()
    assert buffer.sample_sequences(2, 4)["start_h"].shape == (2, 16)
    algo.stop()


def test_buffer_has_sequences_and_evaluation_acts_greedily():
    algo = small().evaluation(evaluation_interval=1, evaluation_duration=2).build_algo()
    result = algo.train()
    assert result["evaluation"]["env_runners"]["num_episodes"] == 2
    (buffer,) = algo.buffers.values()
    assert isinstance(buffer, SequenceReplay)
    assert set(buffer.sample_sequences(1, 4)) == {
        "obs", "actions", "rewards", "is_first", "is_terminated",
    }  # fmt: skip
    algo.stop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_size": "mnii"}, "Did you mean 'mini'"),
        ({"train_critic": False}, "needs the critic"),
        ({"use_curiosity": True}, "not implemented"),
        ({"batch_length_T": 0}, "at least 1"),
        ({"replay_buffer_config": {"capacity": 60}}, "at least 66"),
        ({"replay_buffer_config": {"type": "PrioritizedEpisodeReplayBuffer"}}, "uniformly"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DreamerV3Config().environment("CartPole-v1").training(**options).build_algo()


def test_learning_begins_with_a_small_buffer_too():
    algo = small(replay_buffer_config={"capacity": 20}).build_algo()
    result = [algo.train() for _ in range(3)][-1]
    assert result["learners"]["default_policy"]["num_module_steps_trained_lifetime"] > 0
    algo.stop()


def test_unsupported_spaces_are_refused():
    class Acts(gym.Env):
        observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
        action_space = gym.spaces.Dict({"a": gym.spaces.Discrete(2)})

    with pytest.raises(ValueError, match="flatten the action space"):
        small(lambda config: Acts()).build_algo()


@pytest.fixture(scope="module")
def engine():
    syncline.init(num_cpus=4)
    yield
    syncline.shutdown()


@pytest.mark.processes
def test_runners_in_other_processes_sample_for_it(engine):
    algo = small().env_runners(num_env_runners=2, num_envs_per_env_runner=1).build_algo()
    result = [algo.train() for _ in range(3)][-1]
    assert result["learners"]["default_policy"]["num_module_steps_trained_lifetime"] > 0
    assert isinstance(algo, DreamerV3)
    algo.stop()


@pytest.mark.processes
def test_two_learners_share_the_sequences_and_have_the_same_weights(engine):
    algo = small(batch_size_B=4).learners(num_learners=2).build_algo()
    result = [algo.train() for _ in range(3)][-1]
    assert np.isfinite(result["learners"]["default_policy"]["WORLD_MODEL_L_total"])
    one, other = algo.learner_group.foreach_learner(
        lambda learner: learner.module["default_policy"].get_state()
    )
    assert not np.isnan(one["return_percentiles"]).any()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)
    algo.stop()


def learns(config, goal, *, steps):
    """Train until the mean return of the last 20 episodes is `goal`; return the steps."""
    algo = config.reporting(
        min_sample_timesteps_per_iteration=500, metrics_num_episodes_for_smoothing=20
    ).build_algo()
    try:
        best = -np.inf
        while True:
            result = algo.train()
            sampled = result["num_env_steps_sampled_lifetime"]
            best = max(best, result["env_runners"]["episode_return_mean"])
            if best >= goal:
                return sampled
            assert sampled < steps, f"{best} after {sampled} steps"
    finally:
        algo.stop()


def learner_config(env, **training):
    options = {
        "model_size": "micro",
        "batch_size_B": 8,
        "batch_length_T": 32,
        "horizon_H": 12,
        "training_ratio": 64,
        "world_model_lr": 1e-3,
        "actor_lr": 3e-4,
        "critic_lr": 3e-4,
        "replay_buffer_config": {"capacity": 100_000},
        **training,
    }
    return DreamerV3Config().environment(env).training(**options).debugging(seed=1)


@pytest.mark.long
def test_learns_the_way_across_a_small_frozen_lake():
    config = learner_config(
        "FrozenLake-v1",
        model_size="nano",
        batch_length_T=8,
        horizon_H=5,
        gamma=0.95,
        world_model_lr=2e-3,
        actor_lr=1e-3,
        critic_lr=1e-3,
    ).environment(env_config={"desc": ["SF", "HG"], "is_slippery": False})
    learns(config, 0.95, steps=2000)


@pytest.mark.long
def test_learns_to_balance_a_pole():
    learns(learner_config("CartPole-v1"), 300.0, steps=20_000)


@pytest.mark.long
def test_learns_to_walk_to_a_goal_that_only_an_image_shows():
    """The best mean is 0.83; random walks have -1."""
    config = learner_config(
        ImageGrid,
        model_size="mini",
        batch_size_B=16,
        batch_length_T=16,
        horizon_H=8,
        training_ratio=128,
        gamma=0.97,
        world_model_lr=2e-3,
        actor_lr=5e-4,
        critic_lr=5e-4,
    )
    learns(config, 0.6, steps=12_000)
