"""The default module and the base class of modules in torch: values, weights, checkpoints."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import syncline.rllib  # noqa: F401  # lets checkpoints of RLlib find its module paths
from syncline.rl.columns.trees import map_tree
from syncline.rl.modules.apis import InferenceOnlyAPI, ValueFunctionAPI
from syncline.rl.modules.default_model_config import DefaultModelConfig
from syncline.rl.modules.rl_module import MultiRLModule, RLModule, RLModuleSpec
from syncline.rl.modules.torch.actor_critic import DefaultPPOTorchRLModule
from syncline.rl.modules.torch.catalog import PPOCatalog
from syncline.rl.modules.torch.distributions.deterministic import TorchDeterministic
from syncline.rl.modules.torch.distributions.gaussian import TorchDiagGaussian
from syncline.rl.modules.torch.torch_rl_module import TorchRLModule

VECTOR = spaces.Box(-1.0, 1.0, (4,), np.float32)
RLLIB = Path(__file__).parent / "rllib_checkpoints"


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def spec(cls=DefaultPPOTorchRLModule, action_space=None, inference_only=False, **settings):
    settings = {"fcnet_hiddens": [8], **settings}
    return RLModuleSpec(
        cls, VECTOR, action_space or spaces.Discrete(3), inference_only, model_config=settings
    )


def observations(rows=5):
    return {"obs": torch.randn(rows, 4)}


@pytest.mark.parametrize("shared", [True, False])
def test_values_with_and_without_embeddings(shared):
    module = spec(vf_share_layers=shared).build()
    batch = observations()
    out = module.forward_train(batch)
    assert out["action_dist_inputs"].shape == (5, 3)
    values = module.compute_values(batch, embeddings=out["embeddings"])
    assert values.shape == (5,)
    torch.testing.assert_close(values, module.compute_values(batch))
    values.sum().backward()
    policy = module.encoder.encoder if shared else module.encoder.actor_encoder
    assert (next(policy.parameters()).grad is not None) is shared


class WithClassAttribute(DefaultPPOTorchRLModule):
    action_dist_cls = TorchDeterministic


def test_the_distribution_of_the_class_takes_the_place_of_the_catalogs():
    actions = spaces.Box(-1.0, 1.0, (2,), np.float32)
    module = spec(WithClassAttribute, actions).build()
    assert module.get_train_action_dist_cls() is TorchDeterministic
    assert module.forward_train(observations())["action_dist_inputs"].shape == (5, 2)
    assert spec(action_space=actions).build().get_train_action_dist_cls() is TorchDiagGaussian


def test_inference_has_no_gradients_and_leaves_the_mode_as_it_was():
    module = spec().build()
    assert module.training
    assert not module.forward_exploration(observations())["action_dist_inputs"].requires_grad
    assert module.training
    module.eval()
    module.forward_train(observations())
    assert module.training


class WithDropout(DefaultPPOTorchRLModule):
    def setup(self):
        super().setup()
        self.pi = nn.Sequential(nn.Dropout(0.5), self.pi)


def test_acting_is_in_evaluation_mode_and_training_is_not():
    module = spec(WithDropout).build()
    batch = observations(100)
    policy = module.acting_policy()
    noise = np.full((100, policy.noise_size), 0.5)
    first, _ = policy.act(batch["obs"].numpy(), noise, True)
    second, _ = policy.act(batch["obs"].numpy(), noise, True)
    np.testing.assert_array_equal(first["action_dist_inputs"], second["action_dist_inputs"])
    outputs = [module.forward_train(batch)["action_dist_inputs"] for _ in range(2)]
    assert not torch.equal(*outputs)


def test_module_for_inference_has_no_value_function():
    module = spec(inference_only=True, vf_share_layers=False).build()
    assert not hasattr(module, "vf")
    assert not hasattr(module.encoder, "critic_encoder")
    assert set(module.forward_inference(observations())) == {"action_dist_inputs"}
    with pytest.raises(RuntimeError, match="inference_only=True"):
        module.forward_train(observations())


@pytest.mark.parametrize("shared", [True, False])
def test_weights_travel_from_learner_to_runner_and_back(shared):
    learner = spec(vf_share_layers=shared).build()
    runner = spec(vf_share_layers=shared, inference_only=True).build()
    state = learner.get_state(inference_only=True)
    assert all(isinstance(value, np.ndarray) for value in state.values())
    assert not any(name.startswith(("vf", "encoder.critic_encoder")) for name in state)
    runner.set_state(state)
    batch = observations()
    torch.testing.assert_close(
        runner.forward_inference(batch)["action_dist_inputs"],
        learner.forward_inference(batch)["action_dist_inputs"],
    )
    learner.set_state(runner.get_state())  # lacks the value function, which stays as it is
    runner.set_state(learner.get_state())  # and ignores one


def test_state_is_a_copy_and_is_set_in_place():
    module = spec().build()
    state = module.get_state()
    pointers = [each.data_ptr() for each in module.parameters()]
    for value in state.values():
        value += 1.0
        value.flags.writeable = False  # as from shared memory
    before = module.pi.net.mlp[0].bias.clone()
    module.set_state(state)
    torch.testing.assert_close(module.pi.net.mlp[0].bias, before + 1.0)
    assert pointers == [each.data_ptr() for each in module.parameters()]


def test_state_that_does_not_fit():
    module = spec().build()
    with pytest.raises(ValueError, match=r"(?s)does not fit .*size mismatch"):
        module.set_state(spec(fcnet_hiddens=[9]).build().get_state())
    with pytest.raises(ValueError, match=r"lacks encoder.encoder.net.mlp.0.weight.*unused.*other"):
        module.set_state({"other": np.zeros(3)})
    state = module.get_state()
    del state["pi.net.mlp.0.bias"]
    with pytest.warns(UserWarning, match=r"lacks pi\.net\.mlp\.0\.bias of"):
        module.set_state(state)
    with pytest.raises(ValueError, match=r"lacks pi\.net\.mlp\.0\.bias of"):
        spec(inference_only=True).build().set_state(state)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"vf_share_layers": False},
        {"use_lstm": True, "lstm_cell_size": 6},
        {"use_attention": True},
    ],
    ids=str,
)
def test_checkpoint_restores_class_arguments_and_weights(tmp_path, settings):
    module = spec(action_space=spaces.Box(-1, 1, (2,)), **settings).build()
    restored = RLModule.from_checkpoint(module.save_to_path(tmp_path))
    assert type(restored) is DefaultPPOTorchRLModule
    assert type(restored.catalog) is PPOCatalog
    assert restored.model_config == module.model_config
    for name, value in module.get_state().items():
        np.testing.assert_array_equal(restored.get_state()[name], value)


def test_module_among_others(tmp_path):
    modules = MultiRLModule(rl_module_specs={"a": spec(), "b": spec(vf_share_layers=False)})
    assert modules.framework == "torch"
    out = modules.forward_train({"a": observations(), "b": observations(7)})
    assert out["b"]["action_dist_inputs"].shape == (7, 3)
    restored = MultiRLModule.from_checkpoint(modules.save_to_path(tmp_path))
    np.testing.assert_array_equal(
        restored["b"].get_state()["vf.net.mlp.0.weight"],
        modules["b"].get_state()["vf.net.mlp.0.weight"],
    )


def test_names_of_weights_are_those_of_rllib():
    names = set(spec(vf_share_layers=False, head_fcnet_hiddens=[4]).build().state_dict())
    parts = [
        *(f"encoder.{each}_encoder.net.mlp.0" for each in ("actor", "critic")),
        *(f"{head}.net.mlp.{layer}" for head in ("pi", "vf") for layer in (0, 2)),
    ]
    assert names == {f"{part}.{kind}" for part in parts for kind in ("weight", "bias")}


@pytest.mark.parametrize("name", ["mlp", "shared_ln", "free", "cnn", "lstm_sep"])
def test_checkpoints_of_rllib_give_its_outputs(name):
    """The checkpoints, and the outputs beside them, were made with RLlib 2.60."""
    module = RLModule.from_checkpoint(RLLIB / name)
    assert type(module) is DefaultPPOTorchRLModule
    expected = np.load(RLLIB / name / "expected.npz")
    batch = {"obs": torch.as_tensor(expected["obs"])}
    if module.is_stateful():
        batch["state_in"] = map_tree(
            lambda leaf: torch.as_tensor(np.repeat(leaf[None], len(expected["obs"]), axis=0)),
            module.get_initial_state(),
        )
    out = module.forward_inference(batch)["action_dist_inputs"]
    np.testing.assert_allclose(out, expected["inputs"], atol=1e-5)
    np.testing.assert_allclose(module.compute_values(batch).detach(), expected["values"], atol=1e-5)


class Recurrent(TorchRLModule, ValueFunctionAPI, InferenceOnlyAPI):
    """A module as users write it: a GRU between two linear layers."""

    def setup(self):
        size = self.model_config["cell_size"]
        self.into = nn.Linear(self.observation_space.shape[0], size)
        self.gru = nn.GRU(size, size, batch_first=True)
        self.heads = nn.ModuleDict(
            {"pi": nn.Linear(size, self.action_space.n), "vf": nn.Linear(size, 1)}
        )

    def get_initial_state(self):
        return {"h": np.zeros(self.model_config["cell_size"], np.float32)}

    def get_non_inference_attributes(self):
        return ["heads.vf"]

    def remember(self, batch):
        out, h = self.gru(self.into(batch["obs"]), batch["state_in"]["h"].unsqueeze(0))
        return out, {"h": h.squeeze(0)}

    def _forward(self, batch, **kwargs):
        out, state = self.remember(batch)
        return {"action_dist_inputs": self.heads["pi"](out), "state_out": state}

    def compute_values(self, batch, embeddings=None):
        return self.heads["vf"](self.remember(batch)[0]).squeeze(-1)


def recurrent(**kwargs):
    return RLModuleSpec(
        Recurrent, VECTOR, spaces.Discrete(2), model_config={"cell_size": 6}, **kwargs
    ).build()


def test_custom_module_with_memory_steps_as_its_sequences():
    module = recurrent()
    assert module.is_stateful()
    policy = module.acting_policy()
    obs = np.random.default_rng(0).standard_normal((3, 7, 4)).astype(np.float32)
    state, outputs = None, []
    for t in range(7):
        columns, state = policy.act(obs[:, t], np.full((3, policy.noise_size), 0.5), True, state)
        outputs.append(columns["action_dist_inputs"])
    assert state["h"].shape == (3, 6)
    batch = {"obs": torch.as_tensor(obs), "state_in": {"h": torch.zeros(3, 6)}}
    whole = module.forward_train(batch)["action_dist_inputs"].detach()
    np.testing.assert_allclose(np.stack(outputs, 1), whole, atol=1e-6)
    assert module.compute_values(batch).shape == (3, 7)


def test_parts_inside_of_parts_are_left_out_for_inference():
    assert not hasattr(recurrent(inference_only=True).heads, "vf")
    assert "vf" not in recurrent(inference_only=True).heads._modules
    assert not any("vf" in name for name in recurrent().get_state(inference_only=True))


def test_custom_module_without_distribution():
    class NoDistribution(TorchRLModule):
        pass

    module = NoDistribution(
        observation_space=VECTOR, action_space=spaces.MultiBinary(2), model_config={}
    )
    with pytest.raises(ValueError, match="no action distribution for MultiBinary.*setup"):
        module.get_inference_action_dist_cls()


def test_compiled_forward_methods_replace_the_original_ones():
    module = spec().build()
    batch = observations()
    expected = module.forward_inference(batch)["action_dist_inputs"]
    compiled = []
    original, torch.compile = (
        torch.compile,
        lambda forward, **kwargs: compiled.append(kwargs["backend"]) or forward,
    )
    try:
        module.compile()
    finally:
        torch.compile = original
    assert len(compiled) == 3
    torch.testing.assert_close(module.forward_inference(batch)["action_dist_inputs"], expected)


def test_settings_may_be_an_object():
    config = DefaultModelConfig(fcnet_hiddens=[5], vf_share_layers=False)
    module = RLModuleSpec(
        DefaultPPOTorchRLModule, VECTOR, spaces.Discrete(2), model_config=config
    ).build()
    assert module.encoder.actor_encoder.net.mlp[0].out_features == 5
    direct = DefaultPPOTorchRLModule(
        observation_space=VECTOR, action_space=spaces.Discrete(2), model_config=config
    )
    assert direct.encoder.actor_encoder.net.mlp[0].out_features == 5


def test_spaces_without_a_network_are_an_error_of_the_default_module():
    with pytest.raises(ValueError, match="Observations of Text.* have no default encoder"):
        RLModuleSpec(
            DefaultPPOTorchRLModule, gym.spaces.Text(3), spaces.Discrete(2), model_config={}
        ).build()
