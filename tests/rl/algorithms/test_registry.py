"""Algorithms by name: the installed ones, those that run as another one, and retired ones."""

import importlib
import re
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from syncline import tune
from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms import registry
from syncline.rl.algorithms.a2c import A2C
from syncline.rl.algorithms.dqn import DQN
from syncline.rl.algorithms.ppo import PPO, PPOConfig
from syncline.rl.algorithms.retired import (
    A3C,
    DDPPO,
    PG,
    REPLACEMENTS,
    ApexDQN,
    RandomAgent,
    RetiredAlgorithmError,
    SimpleQ,
)
from syncline.tune.error import TuneError

ROOT = Path(__file__).resolve().parents[3]
RETIRED_PATHS = {
    "alpha_star": "AlphaStar",
    "apex_ddpg": "ApexDDPG",
    "bandit": "BanditLinUCB",
    "crr": "CRR",
    "dreamer": "Dreamer",
    "dt": "DT",
    "leela_chess_zero": "LeelaChessZero",
    "maddpg": "MADDPG",
    "maml": "MAML",
    "mbmpo": "MBMPO",
    "r2d2": "R2D2",
    "slateq": "SlateQ",
}
RENAMED_PATHS = {
    "a3c": A3C,
    "apex_dqn": ApexDQN,
    "ddppo": DDPPO,
    "pg": PG,
    "random_agent": RandomAgent,
    "simple_q": SimpleQ,
}


def entry_points():
    """Return the declared names, whether or not this checkout was installed since."""
    text = (ROOT / "pyproject.toml").read_text()
    (block,) = re.findall(r'\[project.entry-points."syncline.trainables"\]\n(.*?)\n\n', text, re.S)
    found = re.findall(r'^"?([^"=]+?)"? = "([^"]+)"$', block, re.M)
    return [EntryPoint(name, value, "syncline.trainables") for name, value in found]


@pytest.mark.parametrize("point", entry_points(), ids=lambda point: point.name)
def test_declared_names_load_an_algorithm_or_name_a_replacement(point):
    *_, attribute = point.value.split(":")
    if attribute in REPLACEMENTS:
        with pytest.raises(RetiredAlgorithmError, match=r"that is not supported. Use \w+"):
            point.load()
        return
    found = point.load()
    assert issubclass(found, Algorithm)
    assert found.get_default_config().algo_class is found


def test_names_of_older_releases_are_declared():
    names = {point.name for point in entry_points()}
    older = (
        "PPO APPO IMPALA DQN SIMPLE_Q APEX R2D2 SAC RNNSAC DDPG TD3 A2C A3C PG DDPPO MARWIL BC CQL "
        "CRR DT ES ARS MAML MBMPO Dreamer DreamerV3 AlphaZero contrib/AlphaZero QMIX "
        "contrib/MADDPG SlateQ BanditLinUCB BanditLinTS AlphaStar Random LeelaChessZero"
    )
    assert set(older.split()) <= names


def test_get_algorithm_class_returns_class_and_options():
    assert registry.get_algorithm_class("PPO") is PPO
    found, config = registry.get_algorithm_class("PPO", return_config=True)
    assert found is PPO
    assert isinstance(config, PPOConfig)
    assert registry.ALGORITHMS["PPO"]()[0] is PPO
    assert "DQN" in registry.ALGORITHMS
    assert "NoSuchAlgorithm" not in registry.ALGORITHMS
    public = importlib.import_module("syncline.rllib.algorithms.registry")
    assert public.get_algorithm_class("contrib/PPO") is PPO


def test_unknown_names_and_other_trainables_are_refused():
    with pytest.raises(TuneError, match="'PPOO'. Did you mean 'PPO'"):
        registry.get_algorithm_class("PPOO")
    tune.register_trainable("not_an_algorithm", lambda config: None)
    with pytest.raises(
        TypeError, match="'not_an_algorithm'.*not a reinforcement learning algorithm"
    ):
        registry.get_algorithm_class("not_an_algorithm")


@pytest.mark.parametrize(("path", "name"), RETIRED_PATHS.items())
@pytest.mark.parametrize("suffix", ["", "Config"])
def test_imports_of_retired_algorithms_name_their_replacement(path, name, suffix):
    module = importlib.import_module(f"syncline.rllib.algorithms.{path}")
    with pytest.raises(RetiredAlgorithmError) as error:
        getattr(module, f"{name}{suffix}")
    assert f"Use {REPLACEMENTS[name]}." in str(error.value)


def test_import_statement_of_a_retired_algorithm_shows_the_replacement():
    with pytest.raises(ImportError, match=r"MAML is an algorithm from older releases.*Use PPO"):
        exec("from syncline.rllib.algorithms.maml import MAML")


@pytest.mark.parametrize(("path", "algorithm"), RENAMED_PATHS.items())
def test_algorithms_that_run_as_another_one_keep_their_path(path, algorithm):
    module = importlib.import_module(f"syncline.rllib.algorithms.{path}")
    assert getattr(module, algorithm.__name__) is algorithm
    config = getattr(module, f"{algorithm.__name__}Config")()
    assert config.algo_class is algorithm
    config.environment("CartPole-v1").validate()


def small(algorithm):
    config = algorithm.get_default_config().environment("CartPole-v1")
    config.env_runners(num_env_runners=0).debugging(seed=1)
    config.rl_module(model_config={"fcnet_hiddens": [8]})
    return config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)


@pytest.mark.parametrize(
    ("algorithm", "base", "runs", "training"),
    [
        (A3C, A2C, "A2C with `num_env_runners`", {}),
        (PG, A2C, "A2C with `use_critic=False`", {}),
        (SimpleQ, DQN, "DQN with `double_q=False", {"num_steps_sampled_before_learning_starts": 0}),
        (
            ApexDQN,
            DQN,
            "DQN with `num_env_runners`",
            {
                "num_steps_sampled_before_learning_starts": 10,
                "replay_buffer_config": {"capacity": 1000},
                "train_batch_size": 32,
            },
        ),
    ],
)
def test_algorithms_that_run_as_another_one_say_so(algorithm, base, runs, training):
    config = small(algorithm).training(**training)
    with pytest.warns(UserWarning, match=re.escape(runs)):
        algo = config.build_algo()
    assert isinstance(algo, base)
    for _ in range(2):
        result = algo.train()
    assert result["learners"]["default_policy"]["num_module_steps_trained_lifetime"] > 0
    algo.stop()


def test_random_agent_samples_and_learns_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        algo = small(RandomAgent).training(train_batch_size=400).build_algo()
    before = algo.get_weights()["default_policy"]
    before = {name: leaf.copy() for name, leaf in before.items()}
    mean = algo.train()["env_runners"]["episode_return_mean"]
    assert 10 < mean < 40
    assert all(
        (leaf == before[n]).all() for n, leaf in algo.get_weights()["default_policy"].items()
    )
    algo.stop()
