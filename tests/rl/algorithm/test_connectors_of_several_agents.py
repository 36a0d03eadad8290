"""Algorithms with several agents: connectors on all sides, callbacks, merging, checkpoints."""

import gymnasium as gym
import numpy as np
import pytest

from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.connectors.connector import ConnectorV2
from syncline.rl.connectors.to_module.mean_std_filter import MeanStdFilter
from syncline.rl.connectors.to_module.preprocessors import FlattenObservations
from syncline.rl.envs.multi_agent_env import MultiAgentEnv
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode


class TwoAgents(MultiAgentEnv):
    """Agents with observations of different kinds; an episode has ten steps."""

    def __init__(self, config=None):
        super().__init__()
        self.agents = self.possible_agents = ["a", "b"]
        self.observation_spaces = {
            "a": gym.spaces.Dict({"x": gym.spaces.Box(-9, 9, (2,)), "n": gym.spaces.Discrete(3)}),
            "b": gym.spaces.Box(-9, 9, (5,)),
        }
        self.action_spaces = {agent: gym.spaces.Discrete(2) for agent in "ab"}

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self._obs(), {}

    def _obs(self):
        return {
            "a": {"x": np.full(2, self.time / 2, np.float32), "n": self.time % 3},
            "b": np.full(5, self.time % 4, np.float32),
        }

    def step(self, action_dict):
        self.time += 1
        rewards = {agent: float(action) for agent, action in action_dict.items()}
        return self._obs(), rewards, {"__all__": False}, {"__all__": self.time == 10}, {}

    def get_state(self):
        return self.time

    def set_state(self, state):
        self.time = state


class Scaled(ConnectorV2):
    """Halves the rewards that the learner gets."""

    def __call__(self, *, batch, episodes, **kwargs):
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            rewards = np.asarray(episode.get_rewards()) / 2
            episode.set_rewards(new_data=list(rewards))
        return batch


def pieces(env, spaces, device):
    return [FlattenObservations(multi_agent=True), MeanStdFilter(multi_agent=True)]


def shared(agent, episode, **kwargs):
    return "both"


def config(runners=0):
    return (
        PPOConfig()
        .environment(TwoAgents)
        .multi_agent(policies={"both"}, policy_mapping_fn=shared)
        .env_runners(
            num_env_runners=runners, num_envs_per_env_runner=2, env_to_module_connector=pieces
        )
        .learners(learner_connector=lambda *spaces: Scaled())
        .training(train_batch_size=80, minibatch_size=40, num_epochs=1)
        .debugging(seed=1)
    )


def test_connectors_make_agents_share_a_module_and_continue_exactly(tmp_path):
    ends = []
    algo = (
        config()
        .callbacks(
            on_episode_end=lambda episode, **kwargs: ends.append(
                [(agent, len(single)) for agent, single in episode.agent_episodes.items()]
            )
        )
        .build_algo()
    )
    assert algo.get_module("both").observation_space.shape == (5,)
    algo.train()
    assert ends == [[("a", 10), ("b", 10)]] * 8
    algo.save_to_path(tmp_path / "checkpoint")
    restored = config().build_algo()
    restored.restore_from_path(tmp_path / "checkpoint")
    for each in (algo, restored):
        each.train()
    for name, one in algo.get_weights()["both"].items():
        np.testing.assert_array_equal(one, restored.get_weights()["both"][name])
    single = SingleAgentEpisode(
        observations=[np.zeros(5, np.float32)], agent_id="b", module_id="both"
    )
    assert algo.compute_single_action(policy_id="both", episode=single) in (0, 1)
    with pytest.raises(ValueError, match="which agent.*agent_id"):
        algo.compute_single_action(np.zeros(5), policy_id="both")
    algo.stop()
    restored.stop()


@pytest.mark.processes
def test_filters_of_several_runners_are_merged_by_agent():
    algo = config(runners=2).build_algo()
    algo.train()
    known = algo.connectors.env_to_module["MeanStdFilter"]._merged
    seen = algo.env_runner_group.foreach_env_runner(
        lambda runner: {
            agent: each[0].count
            for agent, each in runner.get_pipelines()["env_to_module_connector"][
                "MeanStdFilter"
            ]._merged.items()
        },
        local_env_runner=False,
    )
    # Steps of two runners, with a reset of each environment and those after ends.
    assert {agent: each[0].count for agent, each in known.items()} == {"a": 92, "b": 92}
    assert seen == [{"a": 92, "b": 92}] * 2
    algo.stop()
