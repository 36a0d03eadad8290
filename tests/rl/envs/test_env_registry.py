"""Resolution of the environments that programs name."""

import pickle
import sys
import types

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

from syncline import tune
from syncline.rl.envs.env_context import EnvContext
from syncline.rl.envs.env_errors import EnvError
from syncline.rl.envs.older_gym import OlderGymEnv
from syncline.rl.envs.registry import resolve_env
from syncline.tune import registry


class Small(gym.Env):
    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def __init__(self, config=None):
        self.config = config

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, 0.0, False, False, {}


class NoArguments(Small):
    def __init__(self):
        super().__init__("none")


def context(**config):
    return EnvContext(config, worker_index=3, vector_index=1)


def test_gymnasium_id_gets_keywords_and_keeps_its_time_limit():
    maker = resolve_env("CartPole-v1")
    env = maker.make(context(sutton_barto_reward=True))
    assert env.unwrapped._sutton_barto_reward is True
    assert isinstance(env, gym.wrappers.TimeLimit)
    assert env.spec.max_episode_steps == 500
    assert resolve_env("gymnasium.envs.classic_control:CartPole-v1").make(context()) is not None
    shown = resolve_env("CartPole-v1", render_mode="rgb_array").make(context())
    assert shown.render_mode == "rgb_array"


def test_spec_of_gymnasium():
    assert resolve_env(gym.spec("CartPole-v1")).make(context()).spec.id == "CartPole-v1"


def test_classes_and_functions_get_the_context():
    env = resolve_env(Small).make(context(x=5))
    assert env.config == {"x": 5}
    assert (env.config.worker_index, env.config.vector_index) == (3, 1)
    assert resolve_env(lambda config: Small(config["x"])).make(context(x=7)).config == 7
    assert resolve_env(NoArguments).make(context()).config == "none"
    assert resolve_env(CartPoleEnv).make(context(sutton_barto_reward=True))._sutton_barto_reward


def test_registered_name_wins_and_travels_to_other_processes():
    tune.register_env("CartPole-v1", lambda config: Small("mine"))
    try:
        maker = pickle.loads(cloudpickle.dumps(resolve_env("CartPole-v1")))
    finally:
        del registry._environments["CartPole-v1"]
    assert maker.make(context()).config == "mine"
    assert resolve_env(maker) is maker


def test_dotted_path():
    name = "syncline.rl.envs.examples.mazes.SimpleCorridor"
    assert resolve_env(name).make(context(corridor_length=4)).end_pos == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPole-v7", "Unknown environment 'CartPole-v7'.*Did you mean 'CartPole-v"),
        ("my_corridr", "Did you mean 'my_corridor'.*register_env`: my_corridor"),
        ("no_such_package.Env", "ModuleNotFoundError"),
        ("syncline.rl.envs.registry.Nothing", "Nothing"),
    ],
)
def test_unknown_names(name, message):
    tune.register_env("my_corridor", Small)
    with pytest.raises(ValueError, match=message):
        resolve_env(name)


def test_other_wrong_values():
    with pytest.raises(ValueError, match="No environment is set"):
        resolve_env(None)
    with pytest.raises(TypeError, match="an environment instance"):
        resolve_env(Small())
    with pytest.raises(TypeError, match="is a int"):
        resolve_env(5)
    with pytest.raises(ImportError, match="'ale_py'.*pip install 'ale-py'"):
        resolve_env("ALE/Pong-v5")


def test_failing_creator_names_config_and_place():
    def create(config):
        return {}["missing"]

    with pytest.raises(EnvError) as failure:
        resolve_env(create).make(context(size=8))
    text = str(failure.value)
    assert "KeyError: 'missing'" in text
    assert "{'size': 8}, env runner 3, index 1" in text
    assert text.splitlines()[-1].endswith('in create: return {}["missing"]')
    with pytest.raises(EnvError, match="which has no reset, step"):
        resolve_env(lambda config: object()).make(context())


def test_vectorized_creator():
    class Vector(gym.vector.VectorEnv):
        def __init__(self, config):
            self.num_envs = config["num_envs"]

    assert resolve_env(Vector).make_vector(context(), 5, None).num_envs == 5
    with pytest.raises(EnvError, match="returned a Small.*gymnasium.vector.VectorEnv"):
        resolve_env(Small).make_vector(context(), 5, None)
    with pytest.raises(ValueError, match="Acrobot-v1 has no vectorized version"):
        resolve_env("Acrobot-v1").make_vector(context(), 5, None)


def test_envpool_is_a_vector(monkeypatch):
    made = {}

    def make(name, **arguments):
        made.update(arguments, name=name)
        return "vector"

    library = types.ModuleType("envpool")
    library.make = make
    library.list_all_envs = lambda: ["Pong-v5"]
    monkeypatch.setitem(sys.modules, "envpool", library)
    maker = resolve_env("envpool:Pong-v5")
    assert maker.make_vector(context(frame_skip=2), 16, 7) == "vector"
    assert made == {
        "name": "Pong-v5",
        "env_type": "gymnasium",
        "num_envs": 16,
        "seed": 7,
        "frame_skip": 2,
    }
    with pytest.raises(
        ValueError, match="envpool has no environment 'Pong-v4'. Did you mean 'Pong"
    ):
        resolve_env("envpool:Pong-v4").make_vector(context(), 16, None)
    with pytest.raises(ValueError, match="exists only as a vector"):
        maker.make(context())


class OldSpace:
    """`Box` of the package gym."""

    def __init__(self, low, high, shape):
        self.low, self.high = np.full(shape, low), np.full(shape, high)
        self.shape, self.dtype = shape, np.dtype(np.float32)


OldSpace.__name__ = "Box"


class OldEnv:
    """An environment of gym 0.21, without any base class."""

    def __init__(self, config=None):
        self.observation_space = OldSpace(-1.0, 1.0, (2,))
        self.action_space = spaces.Discrete(2)
        self.seeds = []

    def seed(self, seed=None):
        self.seeds.append(seed)

    def reset(self):
        self.steps = 0
        return np.zeros(2, np.float32)

    def step(self, action):
        self.steps += 1
        limit = self.steps == 3
        return np.zeros(2, np.float32), 1.0, limit, {"TimeLimit.truncated": limit and action == 1}


def test_older_gym_environment_is_adapted_with_a_warning():
    with pytest.warns(DeprecationWarning, match="OldEnv has the API of gym before 0.26"):
        env = resolve_env(OldEnv).make(context())
    assert isinstance(env, OlderGymEnv)
    assert env.observation_space == spaces.Box(-1.0, 1.0, (2,))
    obs, info = env.reset(seed=5)
    assert info == {}
    assert env.seeds == [5]
    assert isinstance(env.unwrapped, OldEnv)
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (True, False)]
    env.reset()
    assert [env.step(1)[2:4] for _ in range(3)][-1] == (False, True)
