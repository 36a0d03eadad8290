"""The sampling loop with a module that draws its actions from the noise alone."""

import gymnasium as gym
import numpy as np
import pytest

from syncline.rl.columns.fragment import concatenate
from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.modules.rl_module import RLModule, RLModuleSpec
from syncline.rl.runners.single_agent_env_runner import SingleAgentEnvRunner


class NoiseActing:
    """Action 1 where the noise is above one half."""

    noise_size = 1
    noise_kind = "uniform"

    def act(self, obs, noise, explore, state=None):
        actions = (noise[:, 0] > 0.5).astype(np.int64) if explore else np.zeros(len(noise), int)
        next_state = None if state is None else {"count": state["count"] + 1}
        return {Columns.ACTIONS: actions}, next_state


class Module(RLModule):
    def acting_policy(self):
        return NoiseActing()

    def get_initial_state(self):
        return {"count": np.zeros((), np.int64)} if self.model_config.get("memory") else {}


class Config(AlgorithmConfig):
    def get_default_rl_module_spec(self):
        return RLModuleSpec(module_class=Module)


class Counter(gym.Env):
    """Observes the number of the step; ends after `length` steps, by chance earlier."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(0, 100, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.length = (config or {}).get("length", 7)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        terminated = bool(self.np_random.random() < 0.1)
        truncated = self.count >= self.length and not terminated
        return np.full(1, self.count, np.float32), float(action), terminated, truncated, {}


def config(**options):
    return Config().environment(Counter).debugging(seed=3).env_runners(**options)


def sampled(fragment):
    return {
        "obs": fragment.obs,
        "actions": fragment.columns["actions"],
        "rewards": fragment.rewards,
        "terminated": fragment.terminated,
        "final_at": fragment.final_at,
        "final_obs": fragment.final_obs,
    }


def assert_equal(one, other):
    for name, value in sampled(one).items():
        np.testing.assert_array_equal(value, sampled(other)[name], err_msg=name)


def test_fragment_contains_what_happened():
    runner = SingleAgentEnvRunner(config=config(num_envs_per_env_runner=3))
    sample = runner.sample_steps(40)
    (fragment,) = sample.fragments.values()
    assert (fragment.length, fragment.width, sample.env_steps) == (40, 3, 120)
    np.testing.assert_array_equal(fragment.rewards, fragment.columns["actions"])
    count = np.zeros(3)
    finals = {tuple(at): obs for at, obs in zip(fragment.final_at, fragment.final_obs, strict=True)}
    for t in range(40):
        np.testing.assert_array_equal(fragment.obs[t, :, 0], count)
        count += 1
        for n in np.flatnonzero(fragment.done[t]):
            assert finals.pop((t, n))[0] == count[n]
            assert fragment.truncated[t, n] == (count[n] == 7 and not fragment.terminated[t, n])
            count[n] = 0
    assert not finals


def test_results_of_episodes_continue_across_fragments():
    runner = SingleAgentEnvRunner(config=config(num_envs_per_env_runner=2))
    samples = [runner.sample_steps(5) for _ in range(12)]
    episodes = [episode for sample in samples for episode in sample.episodes]
    rewards, done = (
        np.concatenate([getattr(each.fragments["default_policy"], name) for each in samples])
        for name in ("rewards", "done")
    )
    expected = {0: [], 1: []}
    for n in (0, 1):
        start = 0
        for t in np.flatnonzero(done[:, n]):
            expected[n].append((rewards[start : t + 1, n].sum(), t + 1 - start))
            start = t + 1
    found = {n: [(e.episode_return, e.length) for e in episodes if e.env == n] for n in (0, 1)}
    assert found == expected
    assert all(expected.values())


def test_samples_do_not_depend_on_the_number_of_runners():
    (one,) = (
        SingleAgentEnvRunner(
            config=config(num_env_runners=1, num_envs_per_env_runner=4), worker_index=1
        )
        .sample_steps(30)
        .fragments.values()
    )
    parts = [
        SingleAgentEnvRunner(
            config=config(num_env_runners=2, num_envs_per_env_runner=2), worker_index=index
        )
        .sample_steps(30)
        .fragments["default_policy"]
        for index in (2, 1)
    ]
    (several,) = concatenate(parts)
    assert_equal(one, several)


@pytest.mark.parametrize("memory", [False, True])
def test_restored_runner_continues_exactly(memory):
    options = config(num_envs_per_env_runner=2).rl_module(
        model_config={"memory": memory, "max_seq_len": 4}
    )
    first = SingleAgentEnvRunner(config=options)
    first.sample_steps(9)
    state = first.get_state()
    expected = first.sample_steps(25)
    second = SingleAgentEnvRunner(config=options)
    second.sample_steps(3)
    assert second.set_state(state)
    found = second.sample_steps(25)
    assert_equal(expected.fragments["default_policy"], found.fragments["default_policy"])
    assert [e.episode_return for e in expected.episodes] == [
        e.episode_return for e in found.episodes
    ]


def test_states_of_modules_begin_anew_with_episodes():
    options = config(num_envs_per_env_runner=2).rl_module(
        model_config={"memory": True, "max_seq_len": 3}
    )
    fragment = SingleAgentEnvRunner(config=options).sample_steps(20).fragments["default_policy"]
    assert fragment.state_every == 3
    np.testing.assert_array_equal(fragment.states["count"], fragment.obs[:-1:3, :, 0])


def test_complete_episodes_come_in_equal_numbers_from_all_environments():
    runner = SingleAgentEnvRunner(config=config(num_envs_per_env_runner=3))
    sample = runner.sample_episodes(7)
    assert np.bincount([episode.env for episode in sample.episodes]).tolist() == [3, 2, 2]
    (fragment,) = sample.fragments.values()
    assert sample.env_steps == fragment.num_steps == sum(e.length for e in sample.episodes)
    assert (fragment.done & fragment.valid).sum() == 7


def test_complete_episodes_have_at_least_the_steps_asked_for():
    runner = SingleAgentEnvRunner(config=config(num_envs_per_env_runner=2))
    sample = runner.sample_complete(31)
    (fragment,) = sample.fragments.values()
    assert sample.env_steps == sum(e.length for e in sample.episodes) >= 31
    for n in range(2):
        last = np.flatnonzero(fragment.valid[:, n])[-1]
        assert fragment.done[last, n]


def test_without_exploration_actions_are_greedy():
    runner = SingleAgentEnvRunner(config=config(explore=False))
    assert runner.sample_steps(20).fragments["default_policy"].rewards.sum() == 0
    explored = runner.sample_steps(20, explore=True)
    assert explored.fragments["default_policy"].rewards.sum() > 0


def test_without_a_seed_every_runner_explores_differently():
    def actions():
        runner = SingleAgentEnvRunner(config=config().debugging(seed=None), worker_index=0)
        return runner.sample_steps(20).fragments["default_policy"].columns["actions"].tolist()

    assert actions() != actions()
