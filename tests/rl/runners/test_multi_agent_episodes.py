"""Episodes and connectors of a runner with several agents."""

import gymnasium as gym
import numpy as np
import pytest

from syncline.rl.callbacks.callbacks import RLlibCallback
from syncline.rl.columns.names import Columns
from syncline.rl.connectors.connector import ConnectorV2
from syncline.rl.connectors.to_module.frame_stacking import FrameStacking
from syncline.rl.connectors.to_module.mean_std_filter import MeanStdFilter
from syncline.rl.connectors.to_module.preprocessors import (
    FlattenObservations,
    MultiAgentObservationPreprocessor,
    PrevActionsPrevRewards,
    SingleAgentObservationPreprocessor,
)
from syncline.rl.runners.multi_agent_env_runner import MultiAgentEnvRunner
from syncline.rl.runners.multi_agent_tracker import reads_episodes
from tests.rl.runners.test_multi_agent_env_runner import Config, Relay, steps


class SavedRelay(Relay):
    def get_state(self):
        return self.time

    def set_state(self, state):
        self.time = state


def by_name(agent, episode, **kwargs):
    return agent


def runner(num_envs=1, mapping=by_name, callbacks=None, env_config=None, **options):
    config = (
        Config()
        .environment(SavedRelay, env_config=env_config or {})
        .env_runners(
            num_envs_per_env_runner=num_envs,
            **{name: (lambda *args, made=made: made()) for name, made in options.items()},
        )
        .multi_agent(policies={"fast", "slow"}, policy_mapping_fn=mapping)
        .debugging(seed=1)
    )
    if callbacks is not None:
        config.callbacks(callbacks)
    return MultiAgentEnvRunner(config=config)


class Recorded(RLlibCallback):
    def __init__(self):
        self.events = []
        self.ended = []

    def on_episode_created(self, *, episode, env_index, **kwargs):
        assert not episode.is_reset
        self.events.append(("created", env_index))

    def on_episode_start(self, *, episode, env, env_index, rl_module, **kwargs):
        assert env.envs[env_index].time == 0
        assert set(rl_module) == {"fast", "slow"}
        self.events.append(("start", len(episode), episode.agent_ids == {"fast", "slow"}))

    def on_episode_step(self, *, episode, **kwargs):
        self.events.append(("step", len(episode), sorted(episode.get_agents_that_stepped())))

    def on_episode_end(self, *, episode, metrics_logger, prev_episode_chunks, **kwargs):
        assert prev_episode_chunks == []
        self.events.append(("end", len(episode)))
        self.ended.append(episode)
        episode.custom_data["custom_metrics"] = {"steps": len(episode)}


def test_callbacks_get_episodes_of_several_agents():
    made = runner(callbacks=Recorded)
    (callback,) = made.callbacks.callbacks
    sample = made.sample_steps(9)
    both = ["fast", "slow"]
    assert callback.events == [
        ("created", 0),
        ("start", 0, True),
        *[("step", t, both if t in (3, 6) else ["fast"]) for t in range(1, 9)],
        ("end", 8),
        ("created", 0),
        ("start", 0, True),
        ("step", 1, ["fast"]),
    ]
    (episode,) = callback.ended
    slow = episode.agent_episodes["slow"]
    assert (slow.get_rewards(), slow.is_terminated, slow.module_id) == ([3.0, 3.0], True, "slow")
    assert episode.get_return() == 14.0  # `slow` gets two rewards more after its end
    assert (episode.is_terminated, episode.id_) == (True, "0-0")
    assert sample.metrics is not None


def test_without_callbacks_there_are_no_episodes():
    assert runner()._tracker is None
    assert runner().sample_steps(3).metrics is None


def test_callbacks_change_no_fragment():
    plain, watched = (
        runner(num_envs=2, callbacks=each).sample_steps(20) for each in (None, Recorded)
    )
    for module_id, fragment in plain.fragments.items():
        other = watched.fragments[module_id]
        np.testing.assert_array_equal(fragment.obs, other.obs)
        np.testing.assert_array_equal(fragment.columns["actions"], other.columns["actions"])


def test_callbacks_of_environments_and_samples():
    seen = {}

    class Both(RLlibCallback):
        def on_environment_created(self, *, env, **kwargs):
            seen["envs"] = len(env.envs)

        def on_sample_end(self, *, samples, **kwargs):
            seen["samples"] = [(len(each), each.is_done) for each in samples]

    runner(num_envs=2, callbacks=Both).sample_steps(9)
    assert seen == {"envs": 2, "samples": [(8, True), (8, True), (1, False), (1, False)]}


def test_mapping_functions_get_episodes_if_they_read_them():
    seen = []

    def mapping(agent, episode, **kwargs):
        seen.append((agent, len(episode), episode.get_agents_to_act()))
        return agent

    runner(mapping=mapping).sample_steps(1)
    assert seen[-2:] == [("fast", 0, set()), ("slow", 0, {"fast"})]
    assert reads_episodes(mapping)
    assert not reads_episodes(lambda agent, episode, **kwargs: str(hash(episode.id_) % 2))


def test_other_mapping_functions_get_its_facts():
    seen = []

    def mapping(agent, episode, **kwargs):
        seen.append((agent, episode.id_, episode.env_t, episode.agent_ids))
        return agent

    made = runner(mapping=mapping)
    made.sample_steps(1)
    assert made._tracker is None
    assert seen[-2:] == [("fast", "0-0", 0, set()), ("slow", "0-0", 0, {"fast"})]

    def hidden(agent, episode, **kwargs):
        return getattr(episode, "get_" + "return")() and agent

    with pytest.raises(AttributeError, match=r"no attribute 'get_return'.*contains `episode\.get_"):
        runner(mapping=hidden)


class Doubled(ConnectorV2):
    """Appends twice the observation."""

    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        box = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        return gym.spaces.Dict(dict.fromkeys(input_observation_space, box))

    def __call__(self, *, batch, episodes, **kwargs):
        for episode in self.single_agent_episode_iterator(episodes):
            (time,) = episode.get_observations(-1)
            new = np.array([time, 2 * time], np.float32)
            episode.set_observations(at_indices=-1, new_data=new)
            episode.observation_space = self.observation_space[episode.agent_id]
        return batch


class Opposite(ConnectorV2):
    """Takes the other action."""

    def __call__(self, *, batch, **kwargs):
        self.foreach_batch_item_change_in_place(
            batch, Columns.ACTIONS, lambda action, episode, agent, module: 1 - action
        )
        return batch


@pytest.mark.parametrize("num_envs", [1, 3])
def test_fragments_hold_what_connectors_wrote_also_at_ends(num_envs):
    made = runner(num_envs, env_to_module_connector=Doubled)
    assert {each[0].shape for each in made.get_spaces().values()} == {(2,)}
    sample = made.sample_steps(20)
    assert steps(sample.fragments["slow"])[:3] == [(0, 3.0, False), (3, 3.0, True), (0, 3.0, False)]
    for fragment in sample.fragments.values():
        assert len(fragment.final_obs)
        for observed in (fragment.obs, fragment.final_obs):
            np.testing.assert_array_equal(observed[..., 1], 2 * observed[..., 0])


def test_a_missing_last_observation_is_not_changed_twice():
    class LeavesSilently(SavedRelay):
        def step(self, action_dict):
            obs, *rest = super().step(action_dict)
            return {a: o for a, o in obs.items() if (a, self.time) != ("slow", 6)}, *rest

    config = (
        Config()
        .environment(LeavesSilently)
        .env_runners(env_to_module_connector=lambda env, spaces, device: Doubled())
        .multi_agent(policies={"fast", "slow"}, policy_mapping_fn=by_name)
    )
    slow = MultiAgentEnvRunner(config=config).sample_steps(8).fragments["slow"]
    assert slow.final_obs.tolist() == [[3.0, 6.0]]


def test_actions_of_connectors_reach_the_environment_and_the_fragment():
    plain = runner().sample_steps(20)
    changed = runner(module_to_env_connector=Opposite).sample_steps(20)
    for module_id, fragment in plain.fragments.items():
        np.testing.assert_array_equal(
            changed.fragments[module_id].columns["actions"], 1 - fragment.columns["actions"]
        )


def test_pieces_of_this_library():
    made = runner(
        env_to_module_connector=lambda: [
            MeanStdFilter(multi_agent=True),
            FlattenObservations(multi_agent=True, agent_ids=["slow"]),
            FrameStacking(multi_agent=True, num_frames=2),
        ]
    )
    assert made.get_spaces()["fast"][0].shape == (2,)
    fragment = made.sample_steps(8).fragments["fast"]
    np.testing.assert_array_equal(fragment.obs[1:-1, 0, 0], fragment.obs[:-2, 0, 1])
    known = made.get_pipelines()["env_to_module_connector"]["MeanStdFilter"]._own
    # At the end of the episode `fast` has seen 0 to 8 and the new 0, `slow` 0, 3, 6 and 0.
    assert {agent: each[0].count for agent, each in known.items()} == {"fast": 10, "slow": 4}
    assert known["slow"][0].mean == pytest.approx(9 / 4)


def test_previous_actions_are_the_agents_own():
    made = runner(
        env_to_module_connector=lambda: PrevActionsPrevRewards(multi_agent=True),
        module_to_env_connector=Opposite,
    )
    slow = made.sample_steps(8).fragments["slow"]
    action = slow.columns["actions"][0, 0]
    assert slow.obs["prev_n_actions"][1, 0].tolist() == np.eye(2)[action].tolist()
    assert slow.obs["prev_n_rewards"][1, 0].tolist() == [3.0]


def test_preprocessors_of_one_agent_and_of_all():
    class Half(SingleAgentObservationPreprocessor):
        def preprocess(self, observation, episode):
            return observation / 2

    class Together(MultiAgentObservationPreprocessor):
        def preprocess(self, observations, episode):
            return {agent: obs + 10 * len(observations) for agent, obs in observations.items()}

    made = runner(env_to_module_connector=lambda: [Half(), Together()])
    fast = made.sample_steps(8).fragments["fast"]
    assert fast.obs[:5, 0, 0].tolist() == [20, 10.5, 11, 21.5, 12]


def test_spaces_that_are_no_dicts_by_agent_are_an_error():
    with pytest.raises(ValueError, match=r"no space for the agent 'fast'.*multi_agent=True"):
        runner(env_to_module_connector=FlattenObservations)


@pytest.mark.parametrize("taken", [3, 10])
def test_a_restored_runner_continues_exactly(taken):
    options = {
        "callbacks": Recorded,
        "env_to_module_connector": lambda: MeanStdFilter(multi_agent=True),
    }
    saved, restored = runner(2, **options), runner(2, **options)
    saved.sample_steps(taken)
    assert restored.set_state(saved.get_state())
    one, two = (each.sample_steps(9).fragments for each in (saved, restored))
    for module_id, fragment in one.items():
        np.testing.assert_array_equal(fragment.obs, two[module_id].obs)
        np.testing.assert_array_equal(
            fragment.columns["actions"], two[module_id].columns["actions"]
        )
    for each in (saved, restored):
        (callback,) = each.callbacks.callbacks
        assert [len(episode) for episode in callback.ended] == [8] * len(callback.ended)
        assert callback.ended[-1].get_return() == 14.0


def test_connectors_may_give_actions_for_the_environment_alone():
    taken = []

    class Watched(SavedRelay):
        def step(self, action_dict):
            taken.append(action_dict)
            return super().step(action_dict)

    class ForSlow(ConnectorV2):
        def __call__(self, *, batch, episodes, **kwargs):
            for episode in self.single_agent_episode_iterator(episodes):
                if episode.agent_id == "slow":
                    self.add_batch_item(batch, Columns.ACTIONS_FOR_ENV, "mine", episode)
            return batch

    config = (
        Config()
        .environment(Watched)
        .env_runners(module_to_env_connector=lambda env, spaces: ForSlow())
        .multi_agent(policies={"fast", "slow"}, policy_mapping_fn=by_name)
    )
    sample = MultiAgentEnvRunner(config=config).sample_steps(3)
    assert taken[0]["slow"] == "mine"
    assert [each["fast"] for each in taken] == sample.fragments["fast"].columns["actions"][
        :, 0
    ].tolist()
    assert set(sample.fragments["slow"].columns) == {"actions"}
