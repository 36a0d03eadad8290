"""Connectors of a runner: what the module sees, what fragments hold, and what continues exactly."""

import gymnasium as gym
import numpy as np
import pytest

from syncline.rl.columns.names import Columns
from syncline.rl.connectors.connector import ConnectorV2
from syncline.rl.runners.single_agent_env_runner import SingleAgentEnvRunner
from tests.rl.runners.test_single_agent_env_runner import config


class Doubled(ConnectorV2):
    """Appends twice the observation, and the number of the call, to what the module sees."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        return gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def __call__(self, *, batch, episodes, **kwargs):
        for episode in self.single_agent_episode_iterator(episodes):
            count = episode.get_observations(-1)[0]
            episode.set_observations(at_indices=-1, new_data=np.array([count, 2 * count]))
            episode.observation_space = self.observation_space
        self.calls += 1
        return batch

    def get_state(self, components=None, *, not_components=None, **kwargs):
        return {"calls": self.calls}

    def set_state(self, state):
        self.calls = state["calls"]


class Opposite(ConnectorV2):
    """Takes the other action."""

    def __call__(self, *, batch, **kwargs):
        self.foreach_batch_item_change_in_place(
            batch, Columns.ACTIONS, lambda action, *ids: 1 - action
        )
        return batch


def runner(**options):
    return SingleAgentEnvRunner(
        config=config(
            num_envs_per_env_runner=3,
            env_to_module_connector=lambda env, spaces, device: Doubled(),
            **options,
        )
    )


def test_fragments_hold_what_connectors_wrote_also_at_ends():
    sampler = runner()
    assert sampler.get_spaces()["default_policy"][0].shape == (2,)
    fragment = sampler.sample_steps(40).fragments["default_policy"]
    assert fragment.obs.shape == (41, 3, 2)
    assert len(fragment.final_obs) > 3
    for observed in (fragment.obs, fragment.final_obs):
        np.testing.assert_array_equal(observed[..., 1], 2 * observed[..., 0])
    counts = fragment.obs[..., 0]
    starts = np.roll(fragment.done, 1, axis=0)[1:]
    assert (counts[1:-1][starts] == 0).all()
    assert (counts[1:-1][~starts] == counts[:-2][~starts] + 1).all()


def test_actions_of_connectors_reach_the_environment_and_the_fragment():
    plain = runner().sample_steps(30).fragments["default_policy"]
    changed = (
        runner(module_to_env_connector=lambda env, spaces: [Opposite()])
        .sample_steps(30)
        .fragments["default_policy"]
    )
    np.testing.assert_array_equal(changed.columns["actions"], 1 - plain.columns["actions"])
    np.testing.assert_array_equal(changed.rewards, changed.columns["actions"])


def test_a_function_may_take_the_environment_alone():
    sampler = SingleAgentEnvRunner(config=config(env_to_module_connector=lambda env: Doubled()))
    assert sampler.observation_space.shape == (2,)


def test_something_else_than_a_connector_is_an_error():
    with pytest.raises(TypeError, match="`env_to_module_connector` must return a ConnectorV2"):
        SingleAgentEnvRunner(config=config(env_to_module_connector=lambda env, spaces, device: 3))


def test_a_restored_runner_continues_exactly():
    saved, restored = runner(), runner()
    saved.sample_steps(10)
    assert restored.set_state(saved.get_state())
    assert restored.get_state()["connectors"] == saved.get_state()["connectors"]
    one, two = (each.sample_steps(20).fragments["default_policy"] for each in (saved, restored))
    np.testing.assert_array_equal(one.obs, two.obs)
    np.testing.assert_array_equal(one.final_obs, two.final_obs)
    assert restored.get_state()["connectors"] == saved.get_state()["connectors"]
