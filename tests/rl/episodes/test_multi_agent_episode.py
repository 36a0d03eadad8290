"""Episodes of several agents: who waits, which values belong to which step, parts, state."""

import pickle

import gymnasium as gym
import numpy as np
import pytest

from syncline.rl.episodes.items import equal
from syncline.rl.episodes.multi_agent_episode import MultiAgentEpisode

SPACES = {
    "observation_space": {agent: gym.spaces.Discrete(100) for agent in "abc"},
    "action_space": {agent: gym.spaces.Discrete(4) for agent in "abc"},
}


def module(agent, episode, **kwargs):
    return f"module {agent}"


def begun(**options):
    episode = MultiAgentEpisode("e", **{**SPACES, "agent_to_module_mapping_fn": module, **options})
    episode.add_env_reset(observations={"a": 0, "b": 50}, infos={"a": {"at": 0}})
    return episode


def relay(steps=6, until=None):
    """Return an episode in which `a` acts in every step and `b` in every second; `c` comes at step
    3 and ends at step 5. A step pays 1 to everybody.
    """
    episode = begun()
    add_steps(episode, 0, steps if until is None else until)
    return episode


def add_steps(episode, start, stop):
    for t in range(start, stop):
        actions = {"a": t % 4}
        if t % 2 == 0:
            actions["b"] = 3 - t // 2 % 4
        if 3 <= t < 5:
            actions["c"] = 1
        observations = {"a": t + 1}
        if (t + 1) % 2 == 0:
            observations["b"] = 50 + t + 1
        if t + 1 in (3, 4, 5):
            observations["c"] = 90 + t + 1
        rewards = {"a": 1.0, "b": 1.0}
        if 2 <= t < 5:
            rewards["c"] = 1.0
        episode.add_env_step(
            observations,
            actions,
            rewards,
            {agent: {"at": t + 1} for agent in observations},
            terminateds={"c": t + 1 == 5, "__all__": False},
            extra_model_outputs={agent: {"logp": -float(t)} for agent in actions},
        )


def same(one, two):
    """Return whether two episodes have the same steps and lookbacks."""
    return (
        (one.env_t, one.env_t_started) == (two.env_t, two.env_t_started)
        and one.get_terminateds() == two.get_terminateds()
        and all(
            equal(
                getattr(one, f"get_{what}")(return_list=True),
                getattr(two, f"get_{what}")(return_list=True),
            )
            for what in ("observations", "infos", "actions", "rewards", "extra_model_outputs")
        )
        and one._hanging_actions == two._hanging_actions
        and one._hanging_rewards == two._hanging_rewards
        and {a: e.get_rewards() for a, e in one.agent_episodes.items()}
        == {a: e.get_rewards() for a, e in two.agent_episodes.items()}
    )


def test_steps_of_agents_last_until_their_next_observation():
    episode = relay(5)
    a, b, c = (episode.agent_episodes[agent] for agent in "abc")
    assert a.get_observations() == [0, 1, 2, 3, 4, 5]
    assert a.get_infos()[0] == {"at": 0}
    assert (b.get_observations(), b.get_actions(), b.get_rewards()) == (
        [50, 52, 54],
        [3, 2],
        [2, 2],
    )
    assert b.get_extra_model_outputs("logp") == [0.0, -2.0]
    assert (c.get_observations(), c.get_rewards(), c.is_terminated) == ([93, 94, 95], [2, 1], True)
    assert (a.module_id, a.agent_id, a.multi_agent_episode_id) == ("module a", "a", "e")
    assert (len(episode), episode.env_steps(), episode.agent_steps()) == (5, 5, 9)
    assert episode.agent_ids == {"a", "b", "c"}
    assert episode.env_t_to_agent_t["b"].data == [0, "S", 1, "S", 2, "S"]
    assert episode.env_t_to_agent_t["c"].data == ["S", "S", "S", 0, 1, 2]


def test_returns_may_include_rewards_of_steps_without_an_end():
    episode = relay(5)
    assert episode.get_return() == 5 + 4 + 3
    assert episode.get_return(include_hanging_rewards=True) == 13
    assert episode.total_reward == 12
    assert episode.agent_rewards["c", "module c"] == 3


def test_agents_that_stepped_and_agents_that_act():
    episode = relay(5)
    assert episode.get_agents_that_stepped() == {"a", "c"}
    assert episode.get_agents_to_act() == {"a"}
    assert MultiAgentEpisode().get_agents_that_stepped() == set()


def test_values_by_step_of_the_environment():
    episode = relay(5)
    assert episode.get_observations(-1) == {"a": 5, "c": 95}
    assert episode.get_observations(2) == {"a": 2, "b": 52}
    assert episode.get_actions(-1) == {"a": 0, "b": 1, "c": 1}
    assert episode.get_rewards(-1) == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert episode.get_rewards(2) == {"a": 1.0, "b": 2.0}
    assert episode.get_rewards(3) == {"a": 1.0, "c": 2.0}
    assert episode.get_actions(slice(1, 3)) == {"a": [1, 2], "b": [2]}
    assert episode.get_actions([0, -1], agent_ids="b") == {"b": [3, 1]}
    assert episode.get_observations(slice(1, 3), ["b", "c"], return_list=True) == [{}, {"b": 52}]
    assert episode.get_extra_model_outputs("logp", -1) == {"a": -4.0, "b": -4.0, "c": -4.0}
    assert episode.get_extra_model_outputs(None, 2) == {"a": {"logp": -2.0}, "b": {"logp": -2.0}}
    assert episode.get_infos(5) == {"a": {"at": 5}, "c": {"at": 5}}
    assert episode.last_action_for("b") == 2


def test_values_by_step_of_each_agent():
    episode = relay(5)
    assert episode.get_actions(-1, env_steps=False) == {"a": 0, "b": 1, "c": 1}
    assert episode.get_observations(slice(-2, None), env_steps=False)["b"] == [52, 54]
    assert episode.get_actions(env_steps=False)["b"] == [3, 2]
    assert episode.get_actions(slice(4, 7), "b", return_list=True) == [{"b": 1}, {}, {}]
    with pytest.raises(ValueError, match="return_list=True needs environment steps"):
        episode.get_actions(env_steps=False, return_list=True)


def test_fill_stands_for_steps_out_of_range_and_agents_that_wait():
    episode = relay(3)
    assert episode.get_rewards(slice(-5, None), "b", fill=0.0) == {"b": [0.0, 0.0, 2.0, 0.0, 1.0]}
    hot = episode.get_actions(1, fill=0, one_hot_discrete=True)
    assert {agent: value.tolist() for agent, value in hot.items()} == {
        "a": [0, 1, 0, 0],
        "b": [0, 0, 0, 0],
        "c": [0, 0, 0, 0],
    }
    with pytest.raises(IndexError, match="no rewards at 7"):
        episode.get_rewards(7)
    assert episode.get_rewards(7, "a", fill=0.0) == {"a": 0.0}


def test_one_hot_actions_include_those_that_hang():
    (action,) = relay(1).get_actions(-1, "b", one_hot_discrete=True).values()
    assert action.tolist() == [0, 0, 0, 1]


def test_an_unknown_output_is_an_error():
    with pytest.raises(KeyError, match="'logits'; there are"):
        relay(2).get_extra_model_outputs("logits")


@pytest.mark.parametrize(
    ("step", "match"),
    [
        ({"actions": {"c": 1}}, "'c' acted at step 1.*no observation yet"),
        ({"actions": {"b": 1}}, "'b' acted.*waits for the observation"),
        ({"observations": {"a": 3}}, "'a' got an observation.*took no action"),
        ({"actions": {"a": 1}, "truncateds": {"a": True}}, "'a' was truncated.*without a last"),
    ],
)
def test_steps_that_do_not_fit_name_the_agent(step, match):
    episode = relay(1)
    with pytest.raises(ValueError, match=match):
        episode.add_env_step(**{"observations": {}, "actions": {}, "rewards": {}, **step})


def test_data_after_the_end_are_errors():
    episode = relay(5)
    with pytest.raises(ValueError, match="'c' ended after 2 steps"):
        episode.add_env_step({"c": 1}, {}, {})
    episode = relay(1)
    episode.add_env_step({"a": 2}, {"a": 1}, {}, terminateds={"__all__": True})
    with pytest.raises(ValueError, match="ended at step 2"):
        episode.add_env_step({}, {}, {})


def test_the_end_of_all_completes_hanging_steps():
    episode = relay(5)
    episode.add_env_step({"a": 6}, {"a": 1}, {"b": 3.0}, terminateds={"__all__": True})
    b = episode.agent_episodes["b"]
    assert (b.get_rewards(-1), b.get_observations(slice(-2, None)), b.is_done) == (
        4,
        [54, 54],
        True,
    )
    assert episode.is_done
    assert not episode._hanging_rewards


def test_an_episode_ends_with_its_last_agent():
    episode = MultiAgentEpisode(**SPACES)
    episode.add_env_reset(observations={"a": 0, "b": 1})
    episode.add_env_step({"a": 1, "b": 2}, {"a": 0, "b": 0}, {}, truncateds={"a": True})
    assert not episode.is_done
    episode.add_env_step({"b": 2}, {"b": 0}, {}, truncateds={"b": True})
    assert episode.get_truncateds() == {"a": True, "b": True, "__all__": True}
    assert not episode.is_terminated


def test_an_agent_that_ends_without_a_step_takes_no_part():
    episode = relay(1)
    episode.add_env_step({"a": 2, "c": 9}, {"a": 1}, {"c": 5.0}, terminateds={"c": True})
    assert episode.agent_ids == {"a", "b"}
    assert episode.get_return(include_hanging_rewards=True) == 2


def test_module_and_custom_data_stay():
    seen = []
    episode = begun(agent_to_module_mapping_fn=lambda agent, e: seen.append(agent) or "m")
    assert episode.module_for("a") == "m"
    assert seen == ["a", "b"]
    episode.custom_data["x"] = 1
    assert episode.cut().custom_data == {"x": 1}
    assert episode.cut().module_for("b") == "m"
    assert seen == ["a", "b"]


@pytest.mark.parametrize("lookback", [0, 1, 3])
@pytest.mark.parametrize("place", range(7))
def test_a_cut_episode_continues_and_joins_to_the_whole(place, lookback):
    whole, first = relay(7), relay(place)
    rest = first.cut(len_lookback_buffer=lookback)
    assert (len(rest), rest.env_t_started, rest.env_t) == (0, place, place)
    if place:
        past = slice(-min(lookback, place), None) if lookback else slice(0, 0)
        assert rest.get_actions(
            slice(-min(lookback, place), 0), neg_index_as_lookback=True, return_list=True
        ) == (first.get_actions(past, return_list=True) if lookback else [])
    add_steps(rest, place, 7)
    assert first.agent_steps() + rest.agent_steps() == whole.agent_steps()
    first.concat_episode(rest)
    assert same(first, whole)


@pytest.mark.parametrize("place", range(1, 7))
def test_slices_join_to_the_whole(place):
    whole = relay(7)
    first, rest = whole[:place], whole[place:]
    assert (len(first), len(rest), rest.env_t_started) == (place, 7 - place, place)
    first.concat_episode(rest)
    assert same(first, whole)


def test_a_slice_ends_with_hanging_actions_and_keeps_its_lookback():
    whole = relay(7)
    part = whole.slice(slice(2, 5), len_lookback_buffer=2)
    assert part.agent_episodes["a"].get_observations() == [2, 3, 4, 5]
    assert part.get_observations(-1, neg_index_as_lookback=True) == {"a": 1}
    assert part.get_observations(-2, neg_index_as_lookback=True) == {"a": 0, "b": 50}
    b = part.agent_episodes["b"]
    assert (b.t_started, b.observations.lookback, b.get_actions()) == (1, 1, [2])
    assert part._hanging_actions == {"b": 1}
    assert part.agent_episodes["c"].is_terminated
    assert not whole[:4].agent_episodes["c"].is_done
    with pytest.raises(ValueError, match="only 1 is supported"):
        whole[::2]


def test_parts_of_others_do_not_join():
    other = MultiAgentEpisode("f")
    with pytest.raises(ValueError, match="belongs to the episode f, not e"):
        relay(2).concat_episode(other)
    with pytest.raises(ValueError, match="begins at 1, not at 2"):
        relay(2).concat_episode(relay(1).cut())


def test_given_steps_are_those_that_were_added():
    whole = relay(5)
    options = {"return_list": True}
    made = MultiAgentEpisode(
        "e",
        observations=whole.get_observations(**options),
        infos=whole.get_infos(**options),
        actions=whole.get_actions(**options),
        rewards=whole.get_rewards(**options),
        extra_model_outputs=whole.get_extra_model_outputs(**options),
        terminateds={"c": True},
        len_lookback_buffer=0,
        agent_to_module_mapping_fn=module,
        **SPACES,
    )
    assert same(made, whole)
    assert made.agent_episodes["c"].get_return() == 3
    lookback = MultiAgentEpisode(
        observations=[{"a": 0}, {"a": 1}], actions=[{"a": 2}], rewards=[{"a": 1.0}]
    )
    assert (len(lookback), lookback.get_actions(-1, neg_index_as_lookback=True)) == (0, {"a": 2})


def test_given_agents_without_an_action_have_ended():
    made = MultiAgentEpisode(
        observations=[{"a": 0, "b": 0}, {"a": 1, "b": 1}, {"a": 2}],
        actions=[{"a": 0, "b": 0}, {"a": 0}],
        rewards=[{"a": 1.0, "b": 1.0}, {"a": 1.0}],
        len_lookback_buffer=0,
    )
    assert made.get_terminateds() == {"a": False, "b": True, "__all__": False}
    with pytest.raises(ValueError, match="'b' has an observation at step 2, but no action"):
        MultiAgentEpisode(observations=[{"b": 0}, {"a": 0}, {"b": 1}], actions=[], rewards=[{}, {}])


def test_arrays():
    episode = relay(5).to_numpy()
    assert episode.is_numpy
    assert episode.get_observations()["b"].tolist() == [50, 52, 54]
    assert episode.get_rewards(slice(-2, None), fill=0.0)["b"].tolist() == [0.0, 1.0]
    assert isinstance(episode[1:3].agent_episodes["a"].actions.data, np.ndarray)
    add_steps(episode, 5, 6)
    assert episode.get_rewards()["b"].tolist() == [2, 2, 2]


def test_setters_count_each_agents_steps():
    episode = relay(5)
    episode.set_observations(new_data={"b": 7}, at_indices=-1)
    episode.set_rewards(new_data={"a": [9.0, 8.0]}, at_indices=slice(0, 2))
    assert episode.get_observations(4)["b"] == 7
    assert episode.get_rewards([0, 1], "a") == {"a": [9.0, 8.0]}
    with pytest.raises(KeyError, match="no agent 'd'"):
        episode.set_actions(new_data={"d": 1}, at_indices=0)


@pytest.mark.parametrize("steps", [0, 3, 5])
def test_state_continues(steps):
    episode = relay(steps)
    episode.custom_data["x"] = [1]
    made = MultiAgentEpisode.from_state(
        pickle.loads(pickle.dumps(episode.get_state())), agent_to_module_mapping_fn=module, **SPACES
    )
    for each in (episode, made):
        add_steps(each, steps, 7)
    assert same(episode, made)
    assert made.custom_data == {"x": [1]}
    assert made.agent_episode_ids["b"] == episode.agent_episode_ids["b"]
