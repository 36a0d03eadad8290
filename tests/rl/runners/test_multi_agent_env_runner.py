"""Agents that come, pause and go, with modules that draw their actions from the noise alone."""

import threading

import gymnasium as gym
import numpy as np
import pytest

from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.envs.multi_agent_env import MultiAgentEnv
from syncline.rl.modules.rl_module import RLModule, RLModuleSpec
from syncline.rl.runners.multi_agent_env_runner import MultiAgentEnvRunner
from syncline.rl.runners.remote_env_runner import RemoteEnvRunner


class NoiseActing:
    noise_size = 1
    noise_kind = "uniform"

    def act(self, obs, noise, explore, state=None):
        return {Columns.ACTIONS: (noise[:, 0] > 0.5).astype(np.int64)}, None


class Module(RLModule):
    def acting_policy(self):
        return NoiseActing()

    def get_initial_state(self):
        return {}


class Config(AlgorithmConfig):
    def get_default_rl_module_spec(self):
        return RLModuleSpec(module_class=Module)


class Relay(MultiAgentEnv):
    """`fast` acts in every step, `slow` in every third; a step pays 1 to both. `slow` leaves after
    its second step; the episode ends after eight.
    """

    def __init__(self, config=None):
        super().__init__()
        self.options = config or {}
        self.agents = self.possible_agents = ["fast", "slow"]
        space = gym.spaces.Box(0, 10, (1,), np.float32)
        self.observation_spaces = dict.fromkeys(self.agents, space)
        self.action_spaces = dict.fromkeys(self.agents, gym.spaces.Discrete(2))

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self._obs("fast", "slow"), {}

    def _obs(self, *agents):
        return {agent: np.full(1, self.time, np.float32) for agent in agents}

    def step(self, action_dict):
        self.time += 1
        agents = ["fast"] + (["slow"] if self.time in (3, 6) else [])
        terminateds = {"__all__": self.time == 8 and not self.options.get("truncate")}
        truncateds = {"__all__": self.time == 8 and bool(self.options.get("truncate"))}
        if self.time == 6:
            terminateds["slow"] = True
        if self.options.get("truncate") == "without last observation" and self.time == 8:
            agents = []
        return self._obs(*agents), {"fast": 1.0, "slow": 1.0}, terminateds, truncateds, {}


def runner(num_envs=1, **env_config):
    return MultiAgentEnvRunner(config=config_of(num_envs, **env_config))


def config_of(num_envs=1, **env_config):
    return (
        Config()
        .environment(Relay, env_config=env_config)
        .env_runners(num_envs_per_env_runner=num_envs)
        .multi_agent(policies={"fast", "slow"}, policy_mapping_fn=lambda agent, episode, **_: agent)
        .debugging(seed=1)
    )


def steps(fragment, n=0):
    """Return observation, reward and end of every step of a trajectory."""
    valid = slice(None) if fragment.valid is None else fragment.valid[:, n]
    return list(
        zip(
            fragment.obs[:-1][valid, n, 0].tolist(),
            fragment.rewards[valid, n].tolist(),
            fragment.done[valid, n].tolist(),
            strict=True,
        )
    )


def test_steps_last_until_the_agents_next_observation_and_collect_its_rewards():
    sample = runner().sample_steps(8)
    assert steps(sample.fragments["fast"]) == [(t, 1.0, t == 7) for t in range(8)]
    assert steps(sample.fragments["slow"]) == [(0, 3.0, False), (3, 3.0, True)]
    assert sample.fragments["slow"].final_obs.tolist() == [[6.0]]
    assert (sample.env_steps, sample.agent_steps) == (8, {"fast": 8, "slow": 2})
    assert sample.module_steps == {"fast": 8, "slow": 2}


def test_results_of_episodes_contain_those_of_agents_and_modules():
    (episode,) = runner().sample_steps(8).episodes
    assert (episode.episode_return, episode.length) == (16.0, 8)
    assert episode.agent_returns == {"fast": 8.0, "slow": 8.0}
    assert episode.module_returns == {"fast": 8.0, "slow": 8.0}


def test_unfinished_steps_wait_for_the_next_fragment():
    made = runner()
    first, second = made.sample_steps(4), made.sample_steps(4)
    assert steps(first.fragments["slow"]) == [(0, 3.0, False)]
    assert first.fragments["slow"].obs[1, 0, 0] == 3
    assert steps(second.fragments["slow"]) == [(3, 3.0, True)]
    assert second.fragments["slow"].first_step.tolist() == [1]


def test_environments_are_trajectories_side_by_side():
    fragment = runner(num_envs=3).sample_steps(16).fragments["slow"]
    assert fragment.width == 3
    assert len(set(fragment.env.tolist())) == 3
    assert all(len(steps(fragment, n)) == 4 for n in range(3))


def test_complete_episodes_are_those_asked_for():
    sample = runner(num_envs=2).sample_episodes(3)
    assert [episode.length for episode in sample.episodes] == [8, 8, 8]
    assert sample.env_steps == 24
    assert sample.fragments["fast"].num_steps == 24
    assert sample.fragments["slow"].num_steps == 6


def test_truncation_keeps_the_last_observation():
    fragment = runner(truncate=True).sample_steps(8).fragments["fast"]
    assert fragment.truncated[7, 0]
    assert not fragment.terminated.any()
    assert fragment.final_obs.tolist() == [[8.0]]


def test_truncation_without_a_last_observation_names_agent_and_step():
    with pytest.raises(ValueError, match=r"'fast'.*step 8.*terminateds\['fast'\]"):
        runner(truncate="without last observation").sample_steps(8)


def test_mapping_to_an_unknown_module_is_an_error_with_the_nearest_one():
    config = Config().environment(Relay)
    config.multi_agent(policies={"fast", "slow"}, policy_mapping_fn=lambda agent, episode: "fats")
    with pytest.raises(KeyError, match=r"'fats'.*Did you mean 'fast'"):
        MultiAgentEnvRunner(config=config)


def test_agents_of_one_module_need_the_same_spaces():
    class Different(Relay):
        def __init__(self, config=None):
            super().__init__(config)
            self.action_spaces = {**self.action_spaces, "slow": gym.spaces.Discrete(3)}

    config = Config().environment(Different)
    config.multi_agent(policies={"all"}, policy_mapping_fn=lambda agent, episode: "all")
    with pytest.raises(ValueError, match="different spaces"):
        MultiAgentEnvRunner(config=config)


class Locked(Relay):
    """Cannot be pickled."""

    def __init__(self, config=None):
        super().__init__(config)
        self.lock = threading.Lock()


def test_a_new_process_continues_from_the_state_of_the_old_one():
    old, new = (RemoteEnvRunner(MultiAgentEnvRunner, config_of(2), 1) for _ in range(2))
    _, state = old.sample("sample_steps", 5, {}, None, True)
    new.load_state(state)
    one, other = (each.sample("sample_steps", 5, {}).fragments for each in (old, new))
    for module_id in ("fast", "slow"):
        assert steps(one[module_id]) == steps(other[module_id])
        actions = [each[module_id].columns[Columns.ACTIONS] for each in (one, other)]
        np.testing.assert_array_equal(*actions)


def test_environments_that_cannot_be_pickled_have_no_state_for_a_new_process():
    old = RemoteEnvRunner(MultiAgentEnvRunner, config_of(2).environment(Locked), 1)
    assert old.sample("sample_steps", 5, {}, None, True)[1] == b""
