"""Pieces from environments to modules: preprocessing, filters, stacking, default items."""

import gymnasium as gym
import numpy as np
import pytest

from syncline.rl.columns.names import Columns
from syncline.rl.connectors.defaults import is_default, own_pieces
from syncline.rl.connectors.pipeline import ConnectorPipelineV2
from syncline.rl.connectors.to_module.frame_stacking import (
    FrameStackingEnvToModule,
    FrameStackingLearner,
)
from syncline.rl.connectors.to_module.items import (
    AddObservationsFromEpisodesToBatch,
    AgentToModuleMapping,
)
from syncline.rl.connectors.to_module.mean_std_filter import MeanStdFilter
from syncline.rl.connectors.to_module.preprocessors import (
    FlattenObservations,
    PrevActionsPrevRewards,
    SingleAgentObservationPreprocessor,
    WriteObservationsToEpisodes,
)
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode

BOX = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
NESTED = gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": BOX})
ACTIONS = gym.spaces.Discrete(3)


def episode_with(*observations, space=BOX, actions=None, rewards=None, **options):
    steps = len(observations) - 1
    return SingleAgentEpisode(
        observations=list(observations),
        observation_space=space,
        actions=actions or [0] * steps,
        action_space=ACTIONS,
        rewards=rewards or [0.0] * steps,
        len_lookback_buffer=0,
        **options,
    )


def call(connector, episodes, batch=None, module=None):
    return connector(
        rl_module=module, batch={} if batch is None else batch, episodes=episodes, shared_data={}
    )


def test_preprocessor_replaces_the_newest_observation():
    class Double(SingleAgentObservationPreprocessor):
        def preprocess(self, observation, episode):
            return observation * 2

    episode = episode_with(np.ones(2), np.ones(2))
    assert call(Double(BOX, ACTIONS), [episode]) == {}
    assert episode.get_observations(-1).tolist() == [2.0, 2.0]
    assert episode.get_observations(0).tolist() == [1.0, 1.0]


def test_flattened_observations_are_one_hot_and_may_lack_keys():
    observation = {"a": 2, "b": np.array([5.0, 6.0], np.float32)}
    flatten = FlattenObservations(NESTED, ACTIONS)
    assert flatten.observation_space.shape == (5,)
    episode = episode_with(observation, space=NESTED)
    call(flatten, [episode])
    assert episode.get_observations(-1).tolist() == [0, 0, 1, 5, 6]
    without = FlattenObservations(NESTED, ACTIONS, keys_to_remove=["a"])
    assert without.observation_space.shape == (2,)
    with pytest.raises(ValueError, match="needs Dict observations"):
        FlattenObservations(BOX, ACTIONS, keys_to_remove=["a"])


def test_flattening_for_several_agents_changes_the_named_ones():
    spaces = gym.spaces.Dict({"one": NESTED, "two": BOX})
    flatten = FlattenObservations(spaces, None, multi_agent=True, agent_ids=["one"])
    assert flatten.observation_space["one"].shape == (5,)
    assert flatten.observation_space["two"] == BOX


def test_previous_actions_and_rewards():
    extend = PrevActionsPrevRewards(BOX, ACTIONS, n_prev_actions=2, n_prev_rewards=2)
    episode = episode_with(np.zeros(2), np.ones(2), actions=[2], rewards=[7.0])
    call(extend, [episode])
    newest = episode.get_observations(-1)
    assert newest["prev_n_actions"].tolist() == [0, 0, 0, 0, 0, 1]
    assert newest["prev_n_rewards"].tolist() == [0, 7]
    assert newest["_orig_obs"].tolist() == [1, 1]
    assert extend.observation_space.contains(
        {**newest, "_orig_obs": newest["_orig_obs"].astype(np.float32)}
    )


def test_frames_are_stacked_after_zeros_and_episodes_keep_single_frames():
    stack = FrameStackingEnvToModule(BOX, ACTIONS, num_frames=3)
    assert stack.observation_space.shape == (6,)
    episode = episode_with(np.full(2, 1.0), np.full(2, 2.0))
    batch = call(stack, [episode])
    assert batch[Columns.OBS][(episode.id_,)][0].tolist() == [0, 0, 1, 1, 2, 2]
    assert episode.get_observations(-1).tolist() == [2, 2]
    images = gym.spaces.Box(0, 255, (4, 4, 1), np.uint8)
    assert FrameStackingEnvToModule(images, ACTIONS, num_frames=4).observation_space.shape == (
        4,
        4,
        4,
    )
    with pytest.raises(ValueError, match="cannot be stacked"):
        FrameStackingEnvToModule(NESTED, ACTIONS, num_frames=4)


class Module:
    def __init__(self, shape):
        self.observation_space = gym.spaces.Box(-1, 1, shape)


def test_frames_are_stacked_for_the_learner_unless_the_runner_did():
    episode = episode_with(np.full(2, 1.0), np.full(2, 2.0), np.full(2, 3.0))
    stack = FrameStackingLearner(num_frames=2)
    batch = call(stack, [episode], module=Module((4,)))
    stacked = batch[Columns.OBS][(episode.id_,)]
    assert [each.tolist() for each in stacked] == [[0, 0, 1, 1], [1, 1, 2, 2]]
    assert call(stack, [episode], module=Module((2,))) == {}


def test_filter_standardizes_and_learns():
    random = np.random.default_rng(0)
    values = random.normal(3.0, 2.0, (500, 2)).astype(np.float32)
    standardize = MeanStdFilter(BOX, ACTIONS)
    for value in values:
        episode = episode_with(value)
        call(standardize, [episode])
    expected = (values[-1] - values.mean(0)) / values.std(0, ddof=1)
    np.testing.assert_allclose(episode.get_observations(-1), expected, rtol=1e-4)
    standardize.update_stats = False
    before = standardize.get_state()
    call(standardize, [episode_with(values[0])])
    assert repr(standardize.get_state()) == repr(before)


def test_filter_leaves_discrete_parts_and_clips():
    standardize = MeanStdFilter(NESTED, ACTIONS, clip_by_value=0.5)
    assert standardize.observation_space["b"].high.tolist() == [0.5, 0.5]
    for value in (1.0, 2.0, 30.0):
        episode = episode_with({"a": 1, "b": np.full(2, value, np.float32)}, space=NESTED)
        call(standardize, [episode])
    newest = episode.get_observations(-1)
    assert newest["a"] == 1
    assert newest["b"].tolist() == [0.5, 0.5]


def test_merged_filters_know_what_one_would_know():
    values = np.random.default_rng(1).normal(size=(60, 2)).astype(np.float32)
    alone = MeanStdFilter(BOX, ACTIONS)
    central, *runners = (MeanStdFilter(BOX, ACTIONS) for _ in range(4))
    for number, value in enumerate(values):
        call(alone, [episode_with(value)])
        call(runners[number % 3], [episode_with(value)])
        if number in (20, 40):  # what comes after the changes were taken is kept
            changes = [each.take_changes() for each in runners]
            call(runners[0], [late := episode_with(values[0])])
            call(alone, [episode_with(values[0])])
            assert late is not None
            merged = central.merge_states(changes)
            central.set_state(merged)
            for each in runners:
                each.set_merged_state(merged)
    central.set_state(central.merge_states([each.take_changes() for each in runners]))
    (one,), (other,) = central._merged[None], alone._own[None]
    assert one.count == other.count == 62
    np.testing.assert_allclose(one.mean, other.mean)
    np.testing.assert_allclose(one.squares, other.squares)


def test_observations_of_the_batch_are_written_to_episodes():
    episode = episode_with(np.zeros(2))
    batch = {Columns.OBS: {(episode.id_,): [np.ones(2)]}}
    call(WriteObservationsToEpisodes(BOX, ACTIONS), [episode], batch)
    assert episode.get_observations(-1).tolist() == [1, 1]
    with pytest.raises(ValueError, match="AddObservationsFromEpisodesToBatch"):
        call(WriteObservationsToEpisodes(BOX, ACTIONS), [episode])


def test_items_of_agents_are_sorted_by_module():
    episodes = [
        episode_with(np.full(2, n), agent_id=f"agent{n}", multi_agent_episode_id="e")
        for n in range(3)
    ]
    batch = call(AddObservationsFromEpisodesToBatch(), episodes)
    mapping = AgentToModuleMapping(
        rl_module_specs={"even", "odd"},
        agent_to_module_mapping_fn=lambda agent, episode: "odd" if agent == "agent1" else "even",
    )
    sorted_ = mapping(batch=batch, episodes=[], shared_data={})
    assert [each.tolist() for each in sorted_["even"][Columns.OBS]] == [[0, 0], [2, 2]]
    wrong = AgentToModuleMapping(
        rl_module_specs={"even"}, agent_to_module_mapping_fn=lambda agent, episode: "evem"
    )
    with pytest.raises(KeyError, match=r"agent0.*evem.*Did you mean 'even'"):
        wrong(batch=call(AddObservationsFromEpisodesToBatch(), episodes), episodes=[])


def test_own_pieces_lie_between_default_ones():
    class Mine(AddObservationsFromEpisodesToBatch):
        pass

    first, last = AddObservationsFromEpisodesToBatch(), AddObservationsFromEpisodesToBatch()
    pipeline = ConnectorPipelineV2(connectors=[first, Mine(), last])
    assert is_default(first)
    assert pipeline.connectors[own_pieces(pipeline.connectors)] == [pipeline["Mine"]]
    assert own_pieces([first, last]) == slice(0, 0)
