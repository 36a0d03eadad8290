"""Connectors in a row: order, spaces, states, and helpers for batches."""

import gymnasium as gym
import numpy as np
import pytest

from syncline.rl.connectors.connector import ConnectorV2
from syncline.rl.connectors.pipeline import ConnectorPipelineV2
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode

SPACE = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
ACTIONS = gym.spaces.Discrete(3)


class Widen(ConnectorV2):
    """Says that observations are one longer; counts its calls."""

    calls = 0

    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        return gym.spaces.Box(-1.0, 1.0, (input_observation_space.shape[0] + 1,), np.float32)

    def __call__(self, *, batch, shared_data, **kwargs):
        self.calls += 1
        shared_data.setdefault("order", []).append(type(self).__name__)
        return batch

    def get_state(self, components=None, *, not_components=None, **kwargs):
        return {"calls": self.calls}

    def set_state(self, state):
        self.calls = state["calls"]

    def merge_states(self, states):
        return {"calls": sum(state["calls"] for state in states)}


class First(Widen):
    pass


class Last(Widen):
    pass


def test_each_connector_gets_the_spaces_that_the_previous_one_returns():
    pipeline = ConnectorPipelineV2(SPACE, ACTIONS, connectors=[Widen()])
    pipeline.set_input_spaces(SPACE, ACTIONS)
    pipeline.insert_before("Widen", First())
    pipeline.insert_after(Widen, Last())
    assert [each.observation_space.shape for each in pipeline.connectors] == [(3,), (4,), (5,)]
    assert pipeline.observation_space.shape == (5,)
    assert pipeline.action_space == ACTIONS
    pipeline.remove(First)
    assert pipeline.observation_space.shape == (4,)
    assert pipeline["Last"].input_observation_space.shape == (3,)


def test_order_is_that_of_the_list():
    pipeline = ConnectorPipelineV2(connectors=[Widen()])
    pipeline.append(Last())
    pipeline.prepend(First())
    shared = {}
    assert pipeline(rl_module=None, batch={}, episodes=[], shared_data=shared) == {}
    assert shared["order"] == ["First", "Widen", "Last"]


def test_unknown_connector_is_named_with_those_that_exist():
    with pytest.raises(ValueError, match=r"no connector 'Frist'; it has \['First'\].*First"):
        ConnectorPipelineV2(connectors=[First()]).remove("Frist")


def test_connector_without_a_batch_is_an_error():
    class Forgets(ConnectorV2):
        def __call__(self, **kwargs):
            pass

    with pytest.raises(TypeError, match=r"Forgets returned NoneType.*return batch"):
        ConnectorPipelineV2(connectors=[Forgets()])(rl_module=None, batch={}, episodes=[])


def test_states_by_connector():
    pipeline = ConnectorPipelineV2(connectors=[First(), ConnectorV2(), Last()])
    pipeline["Last"].calls = 5
    state = pipeline.get_state()
    assert state == {"000_First": {"calls": 0}, "002_Last": {"calls": 5}}
    merged = pipeline.merge_states([state, state])
    assert merged["002_Last"] == {"calls": 10}
    other = ConnectorPipelineV2(connectors=[First(), ConnectorV2(), Last()])
    other.set_state(merged)
    assert other["Last"].calls == 10


def test_items_of_a_batch_belong_to_their_episode():
    episodes = [SingleAgentEpisode(id_="a"), SingleAgentEpisode(id_="b")]
    batch = {}
    for episode in ConnectorV2.single_agent_episode_iterator(episodes):
        ConnectorV2.add_batch_item(batch, "id", episode.id_, episode)
        ConnectorV2.add_n_batch_items(batch, "number", [1, 2], 2, episode)
    assert batch == {
        "id": {("a",): ["a"], ("b",): ["b"]},
        "number": {("a",): [1, 2], ("b",): [1, 2]},
    }
    ConnectorV2.foreach_batch_item_change_in_place(
        batch, "number", lambda item, episode, agent, module: (item * 10, episode, agent)
    )
    assert batch["number"][("b",)] == [(10, "b", None), (20, "b", None)]
    pairs = ConnectorV2.single_agent_episode_iterator(episodes, zip_with_batch_column=batch["id"])
    assert [(episode.id_, item) for episode, item in pairs] == [("a", "a"), ("b", "b")]
    with pytest.raises(ValueError, match="no column 'obs'"):
        ConnectorV2.foreach_batch_item_change_in_place(batch, "obs", lambda *item: item)
