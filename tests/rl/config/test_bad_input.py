"""Wrong options, spaces and environments: errors when an algorithm is built, with the remedy."""

import gymnasium as gym
import numpy as np
import pytest

from syncline.rl.algorithms.dqn import DQNConfig
from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.envs.checks import difference
from syncline.rl.envs.env_errors import EnvError
from syncline.rl.envs.multi_agent_env import MultiAgentEnv
from syncline.rl.modules.rl_module import RLModuleSpec

BOX = gym.spaces.Box(-1, 1, (2,), np.float32)
PAIR = gym.spaces.Discrete(2)


class Env(gym.Env):
    """Returns what its configuration says."""

    observation_space, action_space = BOX, PAIR

    def __init__(self, config):
        self.config = config

    def reset(self, *, seed=None, options=None):
        return self.config.get("first", np.zeros(2, np.float32)), {}

    def step(self, action):
        obs = self.config.get("obs", np.zeros(2, np.float32))
        return obs, self.config.get("reward", 1.0), False, True, {}


class Agents(MultiAgentEnv):
    """Two agents; the last observation of "a" is missing."""

    possible_agents = ["a", "b"]
    observation_spaces = {"a": BOX, "b": BOX}
    action_spaces = {"a": PAIR, "b": PAIR}

    def __init__(self, config):
        super().__init__()

    def reset(self, *, seed=None, options=None):
        return {agent: np.zeros(2, np.float32) for agent in "ab"}, {}

    def step(self, actions):
        obs = {"b": np.zeros(2, np.float32)}
        return obs, {}, {"__all__": False}, {"__all__": True}, {}


def config(env=Env, **env_config):
    return (
        PPOConfig()
        .environment(env, env_config=env_config)
        .env_runners(num_env_runners=0)
        .training(train_batch_size=64, minibatch_size=32, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .debugging(seed=1)
    )


def agents(mapping):
    return config(Agents).multi_agent(policies={"mine"}, policy_mapping_fn=mapping)


@pytest.mark.parametrize(
    ("method", "name", "nearest"),
    [
        ("training", "lrr", "lr"),
        ("training", "clip_parm", "clip_param"),
        ("env_runners", "num_env_runner", "num_env_runners"),
        ("multi_agent", "policy_mapping", "policy_mapping_fn"),
        ("evaluation", "evaluation_intervall", "evaluation_interval"),
        ("fault_tolerance", "restart_failed_env_runner", "restart_failed_env_runners"),
        ("resources", "num_gpu", "num_gpus"),
    ],
)
def test_unknown_arguments_are_errors_with_the_nearest_name(method, name, nearest):
    with pytest.raises(TypeError, match=rf"{method}\(\) has no argument '{name}'.*'{nearest}'"):
        getattr(PPOConfig(), method)(**{name: 1})


def test_names_of_older_releases_are_no_unknown_arguments():
    made = (
        PPOConfig().training(num_sgd_iter=3, sgd_minibatch_size=5).resources(num_gpus_per_worker=0)
    )
    assert (made.num_epochs, made.minibatch_size) == (3, 5)
    assert made.rollouts(num_rollout_workers=3, remote_worker_envs=True).num_env_runners == 3
    older = DQNConfig.from_dict(
        {"buffer_size": 77, "prioritized_replay": False, "learning_starts": 9}
    )
    assert older.replay_buffer_config == {"type": "EpisodeReplayBuffer", "capacity": 77}
    assert older.num_steps_sampled_before_learning_starts == 9


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda c: c.training(lr=-0.1), "`lr=-0.1` must not be negative"),
        (lambda c: c.training(lr=[[0, 0.1], [9, -0.1]]), "must not be negative"),
        (lambda c: c.evaluation(evaluation_duration=0), "`evaluation_duration=0` must be"),
        (lambda c: c.env_runners(num_envs_per_env_runner=48), "Set `num_envs_per_env_runner` to a"),
        (lambda c: c.env_runners(rollout_fragment_length=50), "to 64 or 'auto'"),
        (lambda c: c.training(minibatch_size=100), "larger than the batch"),
        (lambda c: c.environment("CartPol-v1"), "Did you mean 'CartPole-v1'"),
        (
            lambda c: c.environment(observation_space=gym.spaces.Box(-1, 1, (3,))),
            r"configured `observation_space` does not match.*\(3,\).*not.*\(2,\)",
        ),
        (
            lambda c: c.environment(action_space=gym.spaces.Discrete(5)),
            r"configured `action_space`.*Discrete\(5\), not Discrete\(2\)",
        ),
        (
            lambda c: c.rl_module(
                rl_module_spec=RLModuleSpec(observation_space=gym.spaces.Box(-1, 1, (3,)))
            ),
            "Remove it from the RLModuleSpec",
        ),
    ],
)
def test_options_that_cannot_work_are_errors_when_building(changed, message):
    with pytest.raises(ValueError, match=message):
        changed(config()).build_algo()


def test_mapping_to_no_module_is_an_error_when_building():
    with pytest.raises(KeyError, match=r"agent 'a' to the unknown module 'mien'.*'mine'"):
        agents(lambda agent, episode, **kwargs: "mien").build_algo()


def test_preprocessors_of_older_releases_with_several_agents_are_refused():
    made = agents(lambda agent, episode, **kwargs: "mine")
    with pytest.raises(ValueError, match="`custom_preprocessor` has no effect with several agents"):
        made.rl_module(model_config={"custom_preprocessor": object}).build_algo()


def test_unknown_filters_are_refused():
    with pytest.raises(ValueError, match="observation_filter='MeanStdFiler'.*'MeanStdFilter'"):
        config().env_runners(observation_filter="MeanStdFiler").build_algo()


def test_agent_without_a_last_observation_is_named():
    algo = agents(lambda agent, episode, **kwargs: "mine").build_algo()
    with pytest.raises(ValueError, match=r"agent 'a' was truncated at step 1 of environment 0"):
        algo.train()
    algo.stop()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"first": np.zeros(3)}, r"reset.*shape \(3,\), but the space has \(2,\)"),
        ({"obs": np.zeros(3)}, r"step.*shape \(3,\), but the space has \(2,\)"),
        ({"obs": np.full(2, np.nan)}, r"observation\[0\] is nan"),
        ({"obs": np.array(["a", "b"])}, "dtype <U1, but the space has float32"),
        ({"reward": float("inf")}, "reward is inf"),
        ({"reward": "1"}, "must be a number"),
    ],
)
def test_wrong_values_of_environments_are_named(broken, message):
    algo = config(**broken).build_algo()
    with pytest.raises(EnvError, match=message):
        algo.train()
    algo.stop()


def test_differences_of_spaces():
    nested = gym.spaces.Dict({"a": BOX, "b": gym.spaces.Tuple([PAIR])})
    other = gym.spaces.Dict({"a": BOX, "b": gym.spaces.Tuple([gym.spaces.Discrete(3)])})
    assert difference(nested, nested) is None
    assert difference(nested, other) == "['b'][0] is Discrete(2), not Discrete(3)"
    assert "has the keys ['a']" in difference(gym.spaces.Dict({"a": BOX}), nested)
    assert "has 2 parts, not 1" in difference(
        gym.spaces.Tuple([PAIR, PAIR]), gym.spaces.Tuple([PAIR])
    )
    wider = gym.spaces.Box(-9, 9, (2,), np.float64)
    assert difference(wider, BOX) is None
    assert difference(PAIR, BOX) is not None
    assert difference(BOX, nested) is not None
    assert (
        difference(gym.spaces.MultiDiscrete([2, 2]), gym.spaces.MultiDiscrete([2, 3])) is not None
    )


def test_overrides_for_an_unknown_module_are_reported(caplog):
    made = config().rl_module(
        algorithm_config_overrides_per_module={"default_polcy": AlgorithmConfig.overrides(lr=1.0)}
    )
    made.validate()
    assert "default_polcy" in caplog.text
    assert "Did you mean 'default_policy'" in caplog.text
