"""Connectors in algorithms: whole pipelines, learner connectors, merging, checkpoints, learning."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithms.dqn import DQNConfig
from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.columns.names import Columns
from syncline.rl.connectors.connector import ConnectorV2
from syncline.rl.connectors.pipeline import EnvToModulePipeline, ModuleToEnvPipeline
from syncline.rl.connectors.to_module.frame_stacking import (
    FrameStackingEnvToModule,
    FrameStackingLearner,
)
from syncline.rl.connectors.to_module.mean_std_filter import MeanStdFilter
from syncline.rl.envs.examples.memory import StatelessCartPole
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.learners.group import fragments_of


def ppo(env="CartPole-v1", runners=0, **options):
    return (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=4, **options)
        .training(train_batch_size=256, minibatch_size=64, num_epochs=2)
        .debugging(seed=1)
    )


@pytest.fixture
def algo():
    made = ppo().build_algo()
    yield made
    made.stop()


class Seen(ConnectorV2):
    """Counts the episodes that pass."""

    def __call__(self, *, batch, episodes, **kwargs):
        self.count = getattr(self, "count", 0) + len(episodes)
        return batch


def test_all_paths_from_samples_to_batches_agree(algo):
    learner = algo.learner_group._learner
    fragments = fragments_of(algo.env_runner_group.sample_steps(256))["default_policy"]
    plain = learner.build_batch("default_policy", fragments).columns
    pipeline = learner._learner_connector
    first = pipeline.insert_after("AddOneTsToEpisodesAndTruncate", Seen())
    changed = learner.build_batch("default_policy", fragments).columns
    assert first.count > 4
    assert plain.keys() == changed.keys()
    assert all(torch.equal(plain[name], changed[name]) for name in plain)
    # A piece behind the default ones: the whole pipeline makes the batch, in another order.
    pipeline.insert_after("NumpyToTensor", Seen())
    made = learner.build_batch("default_policy", fragments)
    mask = made.columns[Columns.LOSS_MASK]
    assert made.num_rows == 256 == int(mask.sum())
    for name in (Columns.OBS, Columns.ACTIONS, Columns.ADVANTAGES, Columns.VALUE_TARGETS):
        one = plain[name].reshape(256, -1).sum(1).sort().values
        other = made.columns[name][mask].reshape(256, -1).sum(1).sort().values
        torch.testing.assert_close(one, other)


class DoubleRewards(ConnectorV2):
    def __call__(self, *, batch, episodes, **kwargs):
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            rewards = np.asarray(episode.get_rewards()) * 2
            episode.set_rewards(new_data=list(rewards))
            items = [np.float32(7.0)] * len(episode)
            self.add_n_batch_items(batch, "mine", items, len(items), episode)
        return batch


def test_learner_connectors_change_rewards_and_add_columns():
    config = ppo().learners(learner_connector=lambda obs_space, act_space: DoubleRewards())
    algo = config.build_algo()
    fragments = fragments_of(algo.env_runner_group.sample_steps(256))["default_policy"]
    batch = algo.learner_group._learner.build_batch("default_policy", fragments)
    assert set(batch.columns[Columns.REWARDS].tolist()) == {2.0}
    assert batch.columns["mine"].tolist() == [7.0] * 256
    assert batch.columns[Columns.VALUE_TARGETS].max() > 20
    algo.stop()


def test_learner_connectors_of_replay_see_each_row_as_an_episode():
    config = (
        DQNConfig()
        .environment("CartPole-v1")
        .learners(learner_connector=lambda *spaces: DoubleRewards())
        .training(num_steps_sampled_before_learning_starts=50)
        .reporting(min_sample_timesteps_per_iteration=60)
        .debugging(seed=1)
    )
    algo = config.build_algo()
    algo.train()
    learner = algo.learner_group._learner
    rows = algo.buffers["default_policy"].sample(16, n_step=1, gamma=0.9, beta=0.4)
    changed = learner.connected_rows("default_policy", rows)
    np.testing.assert_array_equal(changed[Columns.REWARDS], rows[Columns.REWARDS] * 2)
    np.testing.assert_array_equal(changed[Columns.NEXT_OBS], rows[Columns.NEXT_OBS])
    np.testing.assert_array_equal(changed["batch_indexes"], rows["batch_indexes"])
    algo.stop()


def test_filtered_and_stacked_observations_reach_module_and_learner():
    config = ppo(
        env_to_module_connector=lambda env, spaces, device: [
            MeanStdFilter(),
            FrameStackingEnvToModule(num_frames=3),
        ]
    ).learners(learner_connector=lambda *spaces: [FrameStackingLearner(num_frames=3)])
    algo = config.build_algo()
    algo.train()
    assert algo.get_module().observation_space.shape == (12,)
    assert algo.connectors.env_to_module["MeanStdFilter"]._own[None][0].count >= 256
    algo.stop()


def test_observation_filter_of_older_releases_is_a_connector():
    algo = ppo(observation_filter="MeanStdFilter").build_algo()
    names = [str(each) for each in algo.connectors.env_to_module.connectors]
    assert names[:2] == ["MeanStdFilter", "AddObservationsFromEpisodesToBatch"]
    algo.stop()


def test_saved_pipelines_act_without_the_algorithm(tmp_path):
    algo = ppo(
        "Pendulum-v1", env_to_module_connector=lambda env, spaces, device: MeanStdFilter()
    ).build_algo()
    algo.train()
    path = algo.save_to_path(tmp_path)
    module = algo.get_module()
    to_module = EnvToModulePipeline.from_checkpoint(f"{path}/env_runner/env_to_module_connector")
    to_env = ModuleToEnvPipeline.from_checkpoint(f"{path}/env_runner/module_to_env_connector")
    assert to_module["MeanStdFilter"].get_state() is not None
    episode = SingleAgentEpisode(
        observation_space=to_module.input_observation_space,
        action_space=to_module.input_action_space,
    )
    env = gym.make("Pendulum-v1")
    episode.add_env_reset(env.reset(seed=0)[0])
    shared = {}
    batch = to_module(
        rl_module=module, batch={}, episodes=[episode], explore=False, shared_data=shared
    )
    assert batch[Columns.OBS].shape == (1, 3)
    out = module.forward_inference(batch)
    out = to_env(rl_module=module, batch=out, episodes=[episode], explore=False, shared_data=shared)
    action = out[Columns.ACTIONS_FOR_ENV][0]
    assert env.action_space.contains(action)
    np.testing.assert_allclose(action, np.clip(out[Columns.ACTIONS][0], -1, 1) * 2.0, rtol=1e-5)
    algo.stop()


@pytest.mark.processes
def test_filters_of_several_runners_are_merged_and_restored_for_any_number(tmp_path):
    config = ppo(
        "Pendulum-v1",
        runners=2,
        env_to_module_connector=lambda env, spaces, device: MeanStdFilter(),
    )
    algo = config.build_algo()
    algo.train()
    algo.train()
    known = algo.connectors.env_to_module["MeanStdFilter"]._merged[None][0]
    # The first observation of each environment, and those of all steps.
    assert 512 <= known.count <= 512 + 8 + 16
    states = algo.env_runner_group.foreach_env_runner(
        lambda runner: runner.get_pipelines()["env_to_module_connector"]["MeanStdFilter"]._merged
    )
    assert [state[None][0].count for state in states] == [known.count] * 2
    path = algo.save_to_path(tmp_path)
    algo.stop()
    other = config.copy(copy_frozen=False).env_runners(num_env_runners=0).build_algo()
    other.restore_from_path(path)
    restored = other.connectors.env_to_module["MeanStdFilter"]._merged[None][0]
    np.testing.assert_array_equal(restored.mean, known.mean)
    result = other.evaluate()
    assert result["env_runners"]["num_episodes"] == 10
    (evaluated,) = other.eval_env_runner.get_pipelines()["env_to_module_connector"][
        "MeanStdFilter"
    ]._merged[None]
    np.testing.assert_array_equal(evaluated.mean, known.mean)
    other.stop()


@pytest.mark.long
def test_stacked_frames_solve_a_task_that_one_frame_cannot():
    """Without velocities, single observations stay at about 50 of 500 steps."""
    returns = {}
    for frames in (1, 4):
        config = (
            PPOConfig()
            .environment(StatelessCartPole)
            .env_runners(
                num_env_runners=0,
                num_envs_per_env_runner=8,
                env_to_module_connector=lambda env, spaces, device, n=frames: [
                    MeanStdFilter(),
                    FrameStackingEnvToModule(num_frames=n),
                ],
            )
            .rl_module(model_config={"fcnet_hiddens": [64, 64]})
            .training(
                train_batch_size=1024,
                minibatch_size=256,
                num_epochs=8,
                lr=1e-3,
                gamma=0.98,
                lambda_=0.95,
                use_kl_loss=False,
                entropy_coeff=0.01,
                vf_loss_coeff=0.5,
                grad_clip=0.5,
            )
            .debugging(seed=3)
        )
        algo = config.build_algo()
        for _ in range(60):
            result = algo.train()
        returns[frames] = result["env_runners"]["episode_return_mean"]
        algo.stop()
    assert returns[1] < 100
    assert returns[4] > 200
