"""Multi-agent environments: the interface, copies, groups, checks, restarts, PettingZoo."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils.env import AECEnv

from syncline.rl.envs.env_errors import EnvError
from syncline.rl.envs.env_state import get_env_state
from syncline.rl.envs.examples.games import TwoStepGame, TwoStepGameWithGroupedAgents
from syncline.rl.envs.multi_agent_env import (
    ALL_AGENTS,
    GROUP_INFO,
    GROUP_REWARDS,
    MultiAgentEnv,
    all_agents,
    make_multi_agent,
)
from syncline.rl.envs.multi_agent_vector import make_multi_agent_env
from syncline.rl.envs.pettingzoo import ParallelPettingZooEnv, PettingZooEnv

BIT = spaces.Discrete(2)


@dataclass
class Options:
    env: Any
    env_config: Any = field(default_factory=dict)
    restart_failed_sub_environments: bool = False
    disable_env_checking: bool = False
    render_env: bool = False


class Script(MultiAgentEnv):
    """Returns what the configuration says, step by step; the first entry is the reset."""

    def __init__(self, config):
        super().__init__()
        self.possible_agents = ["a", "b"]
        self.agents = ["a", "b"]
        self.observation_spaces = {"a": BIT, "b": spaces.Box(0.0, 1.0, (1,))}
        self.action_spaces = {"a": BIT, "b": BIT}
        self.script = config["script"]
        self.seeds = []
        self.closed = False

    def reset(self, *, seed=None, options=None):
        self.at = 0
        self.seeds.append(seed)
        return self.next()

    def step(self, action_dict):
        return self.next()

    def next(self):
        value = self.script[self.at]
        self.at += 1
        if isinstance(value, Exception):
            raise value
        return value

    def close(self):
        self.closed = True


HALF = np.full(1, 0.5, np.float32)
START = ({"a": 1, "b": HALF}, {})
FINE = ({"a": 0}, {"a": 1.0, "b": 0}, {ALL_AGENTS: False}, {ALL_AGENTS: False}, {})


def guarded(*script, env=Script, restart=False, check=True, **config):
    options = Options(
        env=env,
        env_config={"script": script, **config} if script else config,
        restart_failed_sub_environments=restart,
        disable_env_checking=not check,
    )
    return make_multi_agent_env(options, worker_index=2, vector_index=1, index=5)


def test_guard_passes_results_and_attributes():
    env = guarded(START, FINE)
    assert env.reset(seed=3) == START
    assert env.step({"a": 1, "b": 0}) == FINE
    assert env.unwrapped.seeds == env.seeds == [3]
    assert env.agents == ["a", "b"]
    assert env.num_agents == env.max_num_agents == 2
    assert env.get_observation_space("b") == spaces.Box(0.0, 1.0, (1,))
    assert isinstance(env, MultiAgentEnv)
    with pytest.raises(AttributeError):
        _ = env.nothing
    env.close()
    assert env.unwrapped.closed


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([({"c": 0}, {})], r"observations for the agent 'c', .* possible agents \['a', 'b'\]"),
        ([({}, {})], "reset.. returned no observation"),
        ([([0], {})], r"the observations \[0\] \(list\), but must return a dict"),
        ([({"a": 2}, {})], "reset.*observation of 'a' is 2"),
        ([({"b": np.zeros(2)}, {})], r"observation of 'b' has the shape \(2,\)"),
        ([START, ({}, {}, {ALL_AGENTS: 0}, {})[:3]], "must return .obs, rewards"),
        ([START, ({}, {"z": 1}, {ALL_AGENTS: False}, {}, {})], "rewards for the agent 'z'"),
        ([START, ({}, {"a": None}, {ALL_AGENTS: False}, {}, {})], "reward of 'a' is None"),
        ([START, ({}, {"a": np.nan}, {ALL_AGENTS: False}, {}, {})], "reward of 'a' is nan"),
        ([START, ({}, {}, {"a": True}, {ALL_AGENTS: False}, {})], "without the key '__all__'"),
        ([START, ({"b": [np.nan]}, {}, {ALL_AGENTS: False}, {}, {})], r"of 'b'\[0\] is nan"),
        ([START, KeyError("queue")], "KeyError: 'queue'"),
    ],
)
def test_wrong_results_name_environment_agent_and_value(script, message):
    env = guarded(*script)
    with pytest.raises(EnvError, match="Environment 5 .Script; env runner 2, index 1") as e:
        play(env, len(script))
    assert e.match(message)


def play(env, calls):
    env.reset(seed=0)
    for _ in range(calls - 1):
        env.step({"a": 0, "b": 0})


def test_truncateds_may_lack_the_flag_for_all_and_infos_may_be_common():
    step = ({"a": 0}, {}, {ALL_AGENTS: True}, {}, {"__common__": {"x": 1}})
    env = guarded(START, step)
    env.reset()
    assert env.step({}) == step


def test_checks_can_be_disabled():
    env = guarded(({"c": 0}, {}), check=False)
    assert env.reset() == ({"c": 0}, {})


def test_failed_environment_is_created_again_and_its_episode_truncated():
    env = guarded(START, FINE, OSError("gone"), restart=True)
    env.reset(seed=10)
    env.step({"a": 0, "b": 0})
    first = env.unwrapped
    obs, rewards, terminateds, truncateds, infos = env.step({"a": 0})
    assert obs == {"a": 0, "b": HALF}, "the last observation of every agent"
    assert (rewards, terminateds, truncateds) == ({}, {ALL_AGENTS: False}, {ALL_AGENTS: True})
    assert infos["a"] == {"env_restarted": True}
    assert first.closed
    assert env.num_restarts == 1
    env.reset()
    assert env.unwrapped.seeds[0] not in (None, 10)
    assert env.step({"a": 0, "b": 0}) == FINE


def test_declarations_are_checked_when_the_environment_is_created():
    class NoAgents(Script):
        def __init__(self, config):
            super().__init__(config)
            self.possible_agents, self.agents, self.observation_spaces = [], [], None

    class NoSpace(Script):
        def __init__(self, config):
            super().__init__(config)
            self.action_spaces = {"a": BIT}

    with pytest.raises(EnvError, match="NoAgents declares no agents. Set `self.possible_agents`"):
        guarded(START, env=NoAgents)
    with pytest.raises(EnvError, match="NoSpace has no action space for the agent 'b'"):
        guarded(START, env=NoSpace)
    with pytest.raises(EnvError, match="CartPole-v1 is a TimeLimit.*needs a MultiAgentEnv"):
        guarded(env="CartPole-v1")


def test_agents_and_spaces_in_the_ways_of_older_programs():
    class OnlyIds(MultiAgentEnv):
        def __init__(self, config):
            super().__init__()
            self._agent_ids = {1, 0}
            self.observation_space = BIT
            self.action_space = spaces.Dict({"0": BIT})

        def reset(self):
            return {0: 1}

        def step(self, action_dict):
            return {0: 0}, {0: 1.0}, {0: True, ALL_AGENTS: True}, {}

    env = guarded(env=OnlyIds)
    assert env.possible_agents == [0, 1]
    assert env.get_observation_space(1) == BIT
    assert env.reset(seed=4) == ({0: 1}, {})
    assert env.step({0: 0})[2:4] == ({0: True, ALL_AGENTS: True}, {ALL_AGENTS: False})
    assert all_agents(TwoStepGame()) == [0, 1]
    shared = MultiAgentEnv()
    shared.observation_space = spaces.Dict({"x": BIT, "y": BIT})
    assert all_agents(shared) == ["x", "y"]
    assert shared.get_observation_space("x") == BIT


def test_state_of_a_guarded_environment():
    env = guarded(START, FINE, START)
    env.reset()
    state = env.get_env_state()
    other = guarded(START, FINE, START)
    other.set_env_state(state, {"a": 1})
    assert other.step({}) == FINE
    assert get_env_state(env.unwrapped) is not None


def test_copies_of_one_environment():
    cls = make_multi_agent("CartPole-v1")
    env = cls({"num_agents": 3})
    assert env.possible_agents == [0, 1, 2]
    obs, _ = env.reset(seed=7)
    assert np.array_equal(obs[1], gym.make("CartPole-v1").reset(seed=8)[0])
    ended: set[int] = set()
    while True:
        actions = {agent: 0 for agent in env.possible_agents if agent not in ended}
        obs, rewards, terminateds, truncateds, _ = env.step(actions)
        assert set(obs) == set(rewards) == set(actions)
        ended |= {a for a in actions if terminateds[a] or truncateds[a]}
        assert terminateds[ALL_AGENTS] == (len(ended) == 3)
        if terminateds[ALL_AGENTS]:
            break
    with pytest.raises(ValueError, match="got no action"):
        env.step({})
    made = make_multi_agent(lambda config: gym.make("CartPole-v1", **config))
    assert made({"num_agents": 1, "sutton_barto_reward": True}).envs[0].unwrapped


def test_groups():
    env = TwoStepGame().with_agent_groups({"pair": [0, 1]})
    assert env.possible_agents == ["pair"]
    assert env.get_observation_space("pair") == spaces.Tuple([spaces.Discrete(6)] * 2)
    assert env.get_action_space("pair") == spaces.Tuple([BIT, BIT])
    obs, infos = env.reset(seed=0)
    assert obs == {"pair": (0, 3)}
    assert infos == {}
    assert env.step({"pair": (1, 0)})[0] == {"pair": (2, 5)}
    obs, rewards, terminateds, truncateds, infos = env.step({"pair": (1, 1)})
    assert rewards == {"pair": 8.0}
    assert (terminateds, truncateds) == ({ALL_AGENTS: True}, {ALL_AGENTS: False})
    assert infos["pair"][GROUP_REWARDS] == [4.0, 4.0]
    assert infos["pair"][GROUP_INFO] == [{"done": True}, {"done": True}]
    ready_made = TwoStepGameWithGroupedAgents({})
    assert ready_made.get_action_space("agents") == spaces.Tuple([BIT, BIT])
    assert ready_made.reset()[0] == {"agents": (0, 3)}


def test_groups_with_single_agents_and_mistakes():
    def script(**config):
        return Script({"script": config["script"]})

    step = (
        {"a": 1, "b": HALF},
        {"b": 2.0},
        {"a": True, "b": True, ALL_AGENTS: True},
        {"a": False, ALL_AGENTS: False},
        {"b": {"x": 1}},
    )
    env = script(script=[START, step]).with_agent_groups({"g": ["a"]})
    assert env.possible_agents == ["g", "b"]
    assert env.reset()[0] == {"g": (1,), "b": HALF}
    obs, rewards, terminateds, truncateds, infos = env.step({"g": (0,), "b": 1})
    assert rewards == {"b": 2.0}
    assert terminateds == {"g": True, "b": True, ALL_AGENTS: True}
    assert truncateds == {"g": False, ALL_AGENTS: False}
    assert infos == {"b": {"x": 1}}

    both = script(script=[({"a": 1}, {})]).with_agent_groups({"g": ["a", "b"]})
    with pytest.raises(ValueError, match=r"members \['b'\] of the group 'g' have no observation"):
        both.reset()
    with pytest.raises(ValueError, match="'g' has 1 parts, but the group has the members"):
        both.step({"g": (1,)})
    with pytest.raises(ValueError, match="'a' is in the groups 'g' and 'h'"):
        script(script=[]).with_agent_groups({"g": ["a"], "h": ["a"]})
    with pytest.raises(ValueError, match="member 'z', which is not an agent"):
        script(script=[]).with_agent_groups({"g": ["z"]})


class MixedEnds(ParallelEnv):
    """One agent is terminated, the other truncated, both at the second step."""

    metadata: dict[str, Any] = {"name": "mixed"}
    possible_agents = ["one", "two"]

    def observation_space(self, agent):
        return BIT

    def action_space(self, agent):
        return BIT

    def reset(self, seed=None, options=None):
        self.agents, self.count = list(self.possible_agents), 0
        return dict.fromkeys(self.agents, 0), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.count += 1
        over = self.count == 2
        present, self.agents = self.agents, [] if over else self.agents
        return (
            dict.fromkeys(present, 1),
            dict.fromkeys(present, 1.0),
            {"one": over, "two": False},
            {"one": False, "two": over},
            {agent: {} for agent in present},
        )


def test_pettingzoo_in_parallel_with_mixed_ends():
    env = guarded(env=lambda config: ParallelPettingZooEnv(MixedEnds()))
    assert env.possible_agents == ["one", "two"]
    obs, _ = env.reset(seed=1)
    assert obs == {"one": 0, "two": 0}
    env.step(dict.fromkeys(obs, 0))
    _, _, terminateds, truncateds, _ = env.step(dict.fromkeys(obs, 0))
    assert terminateds == {"one": True, "two": False, ALL_AGENTS: False}
    assert truncateds == {"one": False, "two": True, ALL_AGENTS: True}


class Turns(AECEnv):
    """Two agents count in turns; agent "two" ends at 3, as does the game, in two ways."""

    metadata: dict[str, Any] = {"name": "turns"}
    possible_agents = ["one", "two"]

    def __init__(self, mixed):
        super().__init__()
        self.mixed = mixed

    def observation_space(self, agent):
        return spaces.Discrete(10)

    def action_space(self, agent):
        return BIT

    def observe(self, agent):
        return self.count

    def reset(self, seed=None, options=None):
        self.agents, self.count = list(self.possible_agents), 0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {"seed": seed} for agent in self.agents}
        self.agent_selection = "one"

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self.count += 1
        self._cumulative_rewards[agent] = 0.0
        self.rewards = {each: float(self.count) for each in self.agents}
        if self.count == 3:
            self.terminations["one"] = True
            (self.truncations if self.mixed else self.terminations)["two"] = True
        self._accumulate_rewards()
        self.agent_selection = "two" if agent == "one" else "one"


@pytest.mark.parametrize("mixed", [False, True])
def test_pettingzoo_in_turns(mixed):
    env = guarded(env=lambda config: PettingZooEnv(Turns(mixed)))
    assert env.possible_agents == ["one", "two"]
    assert env.reset(seed=4) == ({"one": 0}, {"one": {"seed": 4}})
    assert env.step({"one": 0})[:2] == ({"two": 1}, {"two": 1.0})
    assert env.step({"two": 0})[:2] == ({"one": 2}, {"one": 3.0}), "rewards since its last turn"
    obs, rewards, terminateds, truncateds, _ = env.step({"one": 0})
    assert obs == {"one": 3, "two": 3}, "both have a last observation"
    assert rewards == {"one": 3.0, "two": 5.0}
    assert terminateds == {"one": True, "two": not mixed, ALL_AGENTS: not mixed}
    assert truncateds == {"one": False, "two": mixed, ALL_AGENTS: mixed}
    assert env.agents == []
    assert env.reset(seed=5)[0] == {"one": 0}
