"""Modules without a framework: construction, specifications, dict of modules, checkpoints."""

import gymnasium as gym
import numpy as np
import pytest

from syncline.rl.modules.acting import acting_policy
from syncline.rl.modules.default_model_config import (
    DefaultModelConfig,
    complete_model_config,
    model_config_dict,
)
from syncline.rl.modules.distribution import Distribution
from syncline.rl.modules.rl_module import MultiRLModule, MultiRLModuleSpec, RLModule, RLModuleSpec

OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
ACTIONS = gym.spaces.Discrete(2)


class Scale(RLModule):
    """Acts by the sign of the weighted sum of the observation."""

    def setup(self):
        self.setups = getattr(self, "setups", 0) + 1
        self.weights = np.full(3, self.model_config.get("weight", 1.0))

    def _forward(self, batch, **kwargs):
        return {"actions": (batch["obs"] @ self.weights > 0).astype(np.int64)}

    def get_state(self, components=None, *, not_components=None, inference_only=False, **kwargs):
        return {"weights": self.weights}

    def set_state(self, state):
        self.weights = np.asarray(state["weights"])


class Counting(Scale):
    def get_initial_state(self):
        return {"count": np.zeros((), np.int64)}

    def _forward_exploration(self, batch, **kwargs):
        return {**self._forward(batch), "state_out": {"count": batch["state_in"]["count"] + 1}}


class Fussy:
    """A catalog that supports nothing."""

    def __init__(self, observation_space, action_space, model_config_dict):
        raise NotImplementedError(f"no network for {observation_space}")


class NeedsCatalog(Scale):
    def setup(self):
        self.encoder = self.catalog.build_encoder("torch")


def spec(cls=Scale, **kwargs):
    return RLModuleSpec(cls, OBS, ACTIONS, **kwargs)


def test_constructor_calls_setup_once_and_keeps_its_arguments():
    module = spec(model_config={"weight": 2.0}).build()
    assert module.setups == 1
    assert module.observation_space is OBS
    assert not module.is_stateful()
    np.testing.assert_array_equal(module.weights, [2.0, 2.0, 2.0])
    assert module.config.model_config_dict == {"weight": 2.0}


def test_positional_config_is_an_error_with_the_remedy():
    with pytest.raises(TypeError, match="modules take only keyword arguments"):
        Scale({"observation_space": OBS})


def test_incomplete_specification_names_what_is_missing():
    with pytest.raises(ValueError, match="`module_class`, which is None"):
        RLModuleSpec(observation_space=OBS).build()
    with pytest.raises(ValueError, match="`observation_space`, which is None"):
        RLModuleSpec(Scale).build()


def test_custom_module_does_without_a_catalog_that_supports_its_space():
    assert spec(catalog_class=Fussy).build().catalog is None


def test_module_that_needs_the_catalog_shows_why_there_is_none():
    with pytest.raises(NotImplementedError, match="no network for Box"):
        spec(NeedsCatalog, catalog_class=Fussy).build()


def test_inference_only_module_refuses_to_train():
    module = spec(inference_only=True).build()
    with pytest.raises(RuntimeError, match="inference_only=True"):
        module.forward_train({"obs": np.ones((1, 3))})


def test_state_that_is_no_dict_is_an_error():
    module = spec().build()
    module.get_initial_state = lambda: np.zeros(3)
    with pytest.raises(TypeError, match="return a dict of arrays"):
        module.is_stateful()


def test_checkpoint_of_a_module(tmp_path):
    module = spec(model_config={"weight": 3.0}).build()
    module.weights[0] = 5.0
    path = module.save_to_path(tmp_path / "module")
    assert {each.name for each in (tmp_path / "module").iterdir()} == {
        "module_state.pkl",
        "class_and_ctor_args.pkl",
        "metadata.json",
    }
    restored = RLModule.from_checkpoint(path)
    assert type(restored) is Scale
    np.testing.assert_array_equal(restored.weights, [5.0, 3.0, 3.0])
    loaded = spec(load_state_path=path).build()
    np.testing.assert_array_equal(loaded.weights, [5.0, 3.0, 3.0])


def test_update_overrides_or_completes():
    first = RLModuleSpec(Scale, model_config={"weight": 1.0}, inference_only=True)
    first.update(RLModuleSpec(Counting, OBS, ACTIONS), override=False)
    assert (first.module_class, first.observation_space) == (Scale, OBS)
    first.update(RLModuleSpec(Counting))
    assert (first.module_class, first.observation_space) == (Counting, OBS)
    assert first.model_config == {"weight": 1.0}
    assert first.inference_only


def test_specification_of_a_module_builds_an_equal_one():
    module = spec(model_config={"weight": 4.0}).build()
    again = RLModuleSpec.from_module(module)
    assert again.module_class is Scale
    np.testing.assert_array_equal(again.build().weights, module.weights)


def multi():
    return MultiRLModuleSpec(
        rl_module_specs={"a": spec(), "b": spec(Counting, model_config={"weight": -1.0})}
    ).build()


def test_multi_module_is_a_dict_of_modules():
    modules = multi()
    assert list(modules) == ["a", "b"]
    assert list(modules.keys()) == ["a", "b"]
    assert len(modules) == 2
    assert "a" in modules
    assert "c" not in modules
    assert isinstance(modules["b"], Counting)
    assert modules.get("c") is None
    assert modules.is_stateful()
    assert modules.foreach_module(lambda name, module, suffix: name + suffix, suffix="!") == [
        "a!",
        "b!",
    ]
    assert modules.foreach_module(lambda name, module: name, return_dict=True) == {
        "a": "a",
        "b": "b",
    }
    with pytest.raises(KeyError, match=r"Unknown module 'c'.* Modules: a, b"):
        modules["c"]


def test_multi_module_forwards_the_parts_it_knows():
    obs = np.array([[1.0, 0.0, 0.0]])
    out = multi().forward_inference({"a": {"obs": obs}, "b": {"obs": obs}, "other": {"obs": obs}})
    assert set(out) == {"a", "b"}
    assert out["a"]["actions"] == [1]
    assert out["b"]["actions"] == [0]


def test_modules_are_added_and_removed():
    modules = multi()
    modules.add_module("c", spec().build())
    assert list(modules.keys()) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="exists already"):
        modules.add_module("c", spec().build())
    modules.add_module("c", spec(Counting).build(), override=True)
    assert isinstance(modules["c"], Counting)
    assert modules.rl_module_specs["c"].module_class is Counting
    modules.remove_module("c")
    with pytest.raises(KeyError, match="Unknown module 'c'"):
        modules.remove_module("c")
    modules.remove_module("c", raise_err_if_not_found=False)


def test_specifications_are_not_shared_with_the_caller():
    mine = spec()
    modules = MultiRLModule(rl_module_specs={"a": mine}, inference_only=True)
    assert modules["a"].inference_only
    assert not mine.inference_only


def test_inference_only_if_all_modules_are():
    both = {"a": spec(inference_only=True), "b": spec(inference_only=True)}
    assert MultiRLModuleSpec(rl_module_specs=both).build().inference_only
    both["b"] = spec()
    built = MultiRLModuleSpec(rl_module_specs=both).build()
    assert not built.inference_only
    assert built["a"].inference_only
    assert not built["b"].inference_only


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "a ", "a.", 3])
def test_ids_must_be_names_of_directories(name):
    with pytest.raises(ValueError, match="not a valid module id"):
        multi().add_module(name, spec().build())
    with pytest.raises(ValueError, match="not a valid module id"):
        MultiRLModule(rl_module_specs={name: spec()})


def test_checkpoint_of_several_modules_and_of_one_of_them(tmp_path):
    modules = multi()
    modules["b"].weights = np.array([7.0, 8.0, 9.0])
    path = modules.save_to_path(tmp_path)
    restored = MultiRLModule.from_checkpoint(path)
    np.testing.assert_array_equal(restored["b"].weights, [7.0, 8.0, 9.0])
    alone = RLModule.from_checkpoint(tmp_path / "b")
    np.testing.assert_array_equal(alone.weights, [7.0, 8.0, 9.0])
    other = multi()
    other.restore_from_path(tmp_path / "b", component="a")
    np.testing.assert_array_equal(other["a"].weights, [7.0, 8.0, 9.0])
    np.testing.assert_array_equal(other["b"].weights, [-1.0, -1.0, -1.0])


def test_multi_specification_loads_chosen_modules(tmp_path):
    modules = multi()
    modules["a"].weights = modules["b"].weights = np.array([7.0, 8.0, 9.0])
    path = modules.save_to_path(tmp_path)
    built = MultiRLModuleSpec(
        rl_module_specs={"a": spec(), "b": spec()}, load_state_path=path, modules_to_load={"a"}
    ).build()
    np.testing.assert_array_equal(built["a"].weights, [7.0, 8.0, 9.0])
    np.testing.assert_array_equal(built["b"].weights, [1.0, 1.0, 1.0])


def test_multi_specification_is_updated_and_indexed():
    specs = MultiRLModuleSpec(rl_module_specs={"a": RLModuleSpec(), "b": RLModuleSpec(Counting)})
    specs.update(RLModuleSpec(Scale, OBS, ACTIONS))
    assert specs["a"].module_class is Scale
    assert specs["b"].module_class is Counting
    assert specs["b"].observation_space is OBS
    specs.add_modules({"c": spec()})
    assert "c" in specs
    specs.remove_modules(["a", "c"])
    assert list(specs.module_specs) == ["b"]
    assert type(specs.build("b")) is Counting
    with pytest.raises(KeyError, match="Unknown module 'x'"):
        specs["x"]
    with pytest.raises(ValueError, match="pass a dict from module ids"):
        MultiRLModuleSpec(rl_module_specs=spec())


def test_module_alone_becomes_a_multi_module_with_the_default_id():
    module = spec().build()
    modules = module.as_multi_rl_module()
    assert modules["default_policy"] is module
    assert modules.as_multi_rl_module() is modules
    assert list(spec().as_multi_rl_module_spec().build().keys()) == ["default_policy"]


def test_acting_of_a_module_without_framework():
    policy = acting_policy(spec(Counting).build())
    obs = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    state = {"count": np.array([3, 4])}
    columns, state = policy.act(obs, np.zeros((2, 0)), True, state)
    np.testing.assert_array_equal(columns["actions"], [1, 0])
    np.testing.assert_array_equal(state["count"], [4, 5])
    assert "state_out" not in columns


def test_acting_needs_actions():
    module = spec().build()
    module._forward = lambda batch: {"action_dist_inputs": batch["obs"]}
    with pytest.raises(ValueError, match=r"returned \['action_dist_inputs'\].*must return"):
        acting_policy(module).act(np.zeros((1, 3)), np.zeros((1, 0)), False)


def test_defaults_of_rllib():
    config = DefaultModelConfig()
    assert config.fcnet_hiddens == [256, 256]
    assert config.fcnet_activation == "tanh"
    assert config.vf_share_layers
    assert (config.max_seq_len, config.lstm_cell_size) == (20, 256)
    assert not config.has_memory
    assert DefaultModelConfig(use_attention=True).has_memory


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (
            {"use_lstm": True, "use_attention": True},
            "use_lstm and use_attention are mutually exclusive",
        ),
        ({"attention_memory_training": 60}, "`attention_memory_training=60` must be between"),
        ({"lstm_cell_size": 0}, "`lstm_cell_size=0` must be at least 1"),
        ({"log_std_clip_param": -1.0}, "`log_std_clip_param=-1.0` must be positive"),
    ],
)
def test_values_out_of_range(settings, match):
    with pytest.raises(ValueError, match=match):
        DefaultModelConfig(**settings)


def test_dict_of_settings_is_completed_and_misspellings_are_named():
    config = complete_model_config({"fcnet_hiddens": [8], "my_own": 1})
    assert config.fcnet_hiddens == [8]
    assert config.head_fcnet_hiddens == []
    with pytest.warns(UserWarning, match="no setting 'fcnet_hidden'.* mean 'fcnet_hiddens'"):
        complete_model_config({"fcnet_hidden": [8]})
    assert model_config_dict(DefaultModelConfig())["lstm_cell_size"] == 256
    with pytest.raises(TypeError, match="`model_config` is a int"):
        model_config_dict(3)


class Uniform(Distribution):
    def __init__(self, low, high):
        self.low, self.high = low, high

    def sample(self, *, sample_shape=None, **kwargs):
        return self.low

    rsample = sample

    def logp(self, value, **kwargs):
        return -np.log(self.high - self.low)

    def kl(self, other, **kwargs):
        return 0.0

    def entropy(self, **kwargs):
        return np.log(self.high - self.low)

    @staticmethod
    def required_input_dim(space, *, extra=0, **kwargs):
        return 2 + extra

    @classmethod
    def from_logits(cls, logits, *, scale=1.0, **kwargs):
        return cls(logits[..., 0] * scale, logits[..., 1] * scale)


def test_partial_distributions_know_their_arguments():
    partial = Uniform.get_partial_dist_cls(scale=3.0, space=ACTIONS, extra=4)
    built = partial.from_logits(np.array([1.0, 2.0]))
    assert isinstance(built, partial)
    assert (built.low, built.high) == (3.0, 6.0)
    assert partial.required_input_dim(ACTIONS) == 6
    assert built.to_deterministic() is built
    with pytest.raises(ValueError, match=r"\['scale'\] are already set"):
        partial.from_logits(np.array([1.0, 2.0]), scale=2.0)
    with pytest.raises(ValueError, match="is for the action space"):
        partial.required_input_dim(gym.spaces.Discrete(7))
