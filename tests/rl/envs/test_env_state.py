"""Exact states of environments."""

import threading

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle

from syncline.rl.envs.env_state import get_env_state, set_env_state
from syncline.rl.envs.examples.cart_poles import CartPoleSparseRewards
from syncline.rl.envs.examples.games import TwoStepGameWithGroupedAgents
from syncline.rl.envs.examples.multi_agent import MultiAgentCartPole
from syncline.rl.envs.examples.random_env import RandomEnv


class Walk(gym.Env, EzPickle):
    """A random walk; its pickle is the constructor's arguments only."""

    observation_space = spaces.Box(-100.0, 100.0, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, size=1):
        EzPickle.__init__(self, size)
        self.size, self.place = size, 0.0
        self.myself = [self]
        self.callback = lambda: self.place

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0.0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.place += float(self.np_random.normal()) * self.size
        assert self.myself[0].place == self.callback() == self.place
        return np.array([self.place], np.float32), self.place, False, False, {}


class WithMethods(Walk):
    """Offers its state itself, and has an attribute that cannot be pickled."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def get_state(self):
        return {"place": self.place}

    def set_state(self, state):
        self.place = state["place"]


class Unsavable(Walk):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Holder(gym.Wrapper):
    """A wrapper with a state of its own."""

    def __init__(self, env):
        super().__init__(env)
        self.total = 0.0

    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        self.total += float(reward)
        return obs, self.total, *rest


def run(env, steps=12):
    seen = []
    space = env.action_space
    action = 0 if isinstance(space, spaces.Discrete) else np.zeros(space.shape, space.dtype)
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = env.step(action)
        seen.append((np.asarray(obs).tolist() if not isinstance(obs, dict) else None, reward))
        if terminated or truncated:
            obs, _ = env.reset()
            seen.append((None, str(obs)))
    return seen


@pytest.mark.parametrize(
    "make",
    [
        lambda: gym.wrappers.TimeLimit(Walk(), 10),
        lambda: Holder(gym.wrappers.TimeLimit(Holder(WithMethods()), 10)),
        lambda: gym.make("CartPole-v1", max_episode_steps=9),
        lambda: gym.make("Pendulum-v1"),
        lambda: gym.make("FrozenLake-v1"),
        CartPoleSparseRewards,
    ],
)
def test_restored_environment_continues_bit_for_bit(make):
    original, other = make(), make()
    original.reset(seed=3)
    run(original, 7)
    state = get_env_state(original)
    assert state is not None
    expected = run(original, 30)
    other.reset(seed=99)
    run(other, 2)
    set_env_state(other, state)
    assert run(other, 30) == expected
    set_env_state(original, state)
    assert run(original, 30) == expected, "a state can be used several times"


def test_random_spaces_are_part_of_the_state():
    config = {"observation_space": spaces.Box(-1.0, 1.0, (2,))}
    env, other = RandomEnv(config), RandomEnv(config)
    env.reset(seed=1)
    state = get_env_state(env)
    assert state is not None
    expected = run(env)
    set_env_state(other, state)
    assert run(other) == expected


def test_environments_inside_of_environments():
    env, other = MultiAgentCartPole({"num_agents": 2}), MultiAgentCartPole({"num_agents": 2})
    env.reset(seed=0)
    for _ in range(3):
        env.step({0: 1, 1: 0})
    state = get_env_state(env)
    assert state is not None
    expected = env.step({0: 1, 1: 1})
    other.reset(seed=5)
    set_env_state(other, state)
    found = other.step({0: 1, 1: 1})
    assert {a: obs.tolist() for a, obs in found[0].items()} == {
        a: obs.tolist() for a, obs in expected[0].items()
    }


def test_groups_of_agents_save_the_game_of_their_members():
    env, other = TwoStepGameWithGroupedAgents(), TwoStepGameWithGroupedAgents()
    env.reset()
    env.step({"agents": (1, 0)})
    state = get_env_state(env)
    assert state is not None
    other.reset()
    set_env_state(other, state)
    assert other.step({"agents": (1, 1)})[1] == env.step({"agents": (1, 1)})[1] == {"agents": 8.0}


def test_state_that_cannot_be_saved_is_reported_once(caplog):
    assert get_env_state(Unsavable()) is None
    assert get_env_state(gym.wrappers.TimeLimit(Unsavable(), 5)) is None
    messages = [record.message for record in caplog.records if "Unsavable" in record.message]
    assert len(messages) == 1
    assert "Define get_state() and set_state(state)" in messages[0]


def test_state_of_another_environment():
    state = get_env_state(gym.wrappers.TimeLimit(Walk(), 5))
    assert state is not None
    with pytest.raises(ValueError, match=r"\['TimeLimit', 'Walk'\].*this one has \['Walk'\]"):
        set_env_state(Walk(), state)
