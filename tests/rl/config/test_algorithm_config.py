"""Options: methods, keys, copies, checks, earlier names."""

import gymnasium as gym
import pytest

from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.schedule import Schedule
from syncline.rl.modules.default_model_config import DefaultModelConfig
from syncline.rl.modules.rl_module import MultiRLModuleSpec, RLModule, RLModuleSpec


class Config(AlgorithmConfig):
    """An algorithm's options with a module."""

    own: float = 3.0

    def get_default_rl_module_spec(self):
        return RLModuleSpec(module_class=RLModule)

    @property
    def _samples_whole_batches(self):
        return True


SPACES = (gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2))


def test_methods_set_options_and_return_the_configuration():
    config = (
        Config()
        .environment("CartPole-v1", env_config={"a": 1})
        .env_runners(num_env_runners=3, rollout_fragment_length="auto")
        .training(lr=0.5, train_batch_size_per_learner=300)
        .environment(env_config={"b": 2})
    )
    assert (config.env, config.env_config) == ("CartPole-v1", {"a": 1, "b": 2})
    assert config["num_env_runners"] == config.num_env_runners == 3
    assert (config.lr, config["own"]) == (0.5, 3.0)
    assert config.train_batch_size_per_learner == config["train_batch_size_per_learner"] == 300


def test_unknown_keywords_and_options_are_errors_with_the_nearest_name():
    with pytest.raises(TypeError):
        Config().environment(envv="CartPole-v1")
    with pytest.raises(KeyError, match="num_env_runners"):
        Config.overrides(num_env_runner=1)
    with pytest.raises(AttributeError, match="gamma"):
        _ = Config().gama
    with pytest.warns(UserWarning, match="gamma"):
        Config().update_from_dict({"gama": 0.9})


def test_earlier_names_mean_the_current_options():
    config = Config.from_dict(
        {
            "num_workers": 4,
            "num_envs_per_worker": 2,
            "sgd_minibatch_size": 16,
            "num_sgd_iter": 5,
            "lambda": 0.5,
            "framework": "torch",
            "multiagent": {"policies": {"a": None, "b": None}},
        }
    )
    assert (config.num_env_runners, config.num_envs_per_env_runner) == (4, 2)
    assert (config.minibatch_size, config.num_epochs) == (16, 5)
    assert config["num_workers"] == 4
    assert config.num_workers == 4
    assert sorted(config.policies) == ["a", "b"]
    assert config.is_multi_agent


def test_copies_are_independent_and_frozen_ones_cannot_be_changed():
    config = Config().environment(env_config={"deep": {"list": [1]}})
    copied = config.copy(copy_frozen=True)
    config.env_config["deep"]["list"].append(2)
    assert copied.env_config == {"deep": {"list": [1]}}
    with pytest.raises(AttributeError, match=r"copy\(copy_frozen=False\)"):
        copied.lr = 1.0
    assert copied.copy(copy_frozen=False).training(lr=1.0).lr == 1.0


def test_defaults_are_not_shared():
    one, other = Config(), Config()
    one.env_config["a"] = 1
    assert other.env_config == {}


def test_dictionary_gives_the_same_configuration():
    config = Config().training(lr=0.1, train_batch_size_per_learner=64).debugging(seed=3)
    config.multi_agent(policies={"a", "b"}, policies_to_train=["a"])
    config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[3]))
    again = Config.from_dict(config.to_dict())
    assert again.to_dict() == config.to_dict()
    assert Config.from_state(config.get_state()).to_dict() == config.to_dict()


def test_fragment_lengths_sum_up_to_the_batch():
    config = Config().training(train_batch_size_per_learner=1000)
    config.env_runners(num_env_runners=3, num_envs_per_env_runner=2, rollout_fragment_length="auto")
    lengths = [config.get_rollout_fragment_length(index) for index in (1, 2, 3)]
    assert lengths == [167, 167, 166]
    assert sum(lengths) * 2 == 1000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_mode": "truncated"}, r"batch_mode.*truncated.*truncate_episodes"),
        ({"gamma": 1.5}, "gamma=1.5"),
        ({"num_env_runners": -1}, "num_env_runners=-1"),
        ({"minibatch_size": 100, "train_batch_size_per_learner": 50}, "minibatch_size=100.*50"),
        ({"lr": [[5, 0.1]]}, "start at 0"),
        ({"evaluation_parallel_to_training": True}, "evaluation_num_env_runners"),
        ({"policies_to_train": ["default"]}, "default_policy"),
        (
            {"rollout_fragment_length": 30, "train_batch_size_per_learner": 100},
            "rollout_fragment_length` to 100 or 'auto'",
        ),
        ({"enable_rl_module_and_learner": False}, "both True or both False"),
    ],
)
def test_mistakes_are_errors_with_the_values(change, message):
    config = Config.from_dict({"rollout_fragment_length": "auto", **change})
    with pytest.raises(ValueError, match=message):
        config.validate()


def test_evaluation_options_replace_those_of_training():
    config = Config().debugging(seed=1).env_runners(num_env_runners=4, explore=True)
    config.evaluation(
        evaluation_config=Config.overrides(explore=False), evaluation_num_env_runners=2
    )
    found = config.get_evaluation_config_object()
    assert (found.explore, found.num_env_runners, found.in_evaluation) == (False, 2, True)
    assert found.seed == 1_000_001


def test_specifications_are_completed_from_options_and_spaces():
    config = (
        Config()
        .multi_agent(policies={"a", "b"})
        .rl_module(
            model_config={"width": 1},
            rl_module_spec=MultiRLModuleSpec(
                rl_module_specs={"a": RLModuleSpec(model_config={"depth": 2})}
            ),
        )
    )
    spec = config.get_multi_rl_module_spec(spaces={"a": SPACES, "b": SPACES})
    assert spec.rl_module_specs["a"].model_config == {"width": 1, "depth": 2}
    assert spec.rl_module_specs["b"].model_config == {"width": 1}
    assert spec.rl_module_specs["b"].module_class is RLModule
    assert spec.rl_module_specs["a"].observation_space is SPACES[0]


def test_options_of_single_modules():
    config = Config().multi_agent(
        policies={"a", "b"}, algorithm_config_overrides_per_module={"a": Config.overrides(lr=7.0)}
    )
    assert config.get_config_for_module("a").lr == 7.0
    assert config.get_config_for_module("b").lr == config.lr


def test_schedule_is_linear_between_its_points():
    schedule = Schedule([[0, 1.0], [100, 0.5], [300, 0.0]])
    assert [schedule.value(step) for step in (0, 50, 100, 200, 300, 999)] == [
        1.0,
        0.75,
        0.5,
        0.25,
        0.0,
        0.0,
    ]
    assert Schedule(0.3).value(10**9) == 0.3
