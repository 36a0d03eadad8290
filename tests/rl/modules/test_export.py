"""Exported modules act as the module does, without syncline."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.algorithms.sac import SACConfig
from syncline.rl.columns.trees import leaves
from syncline.rl.envs.multi_agent_env import make_multi_agent
from syncline.rl.modules.torch.export import EXTENSIONS, ExportedPolicy, export_module

ROWS = 5
FORMATS = pytest.mark.parametrize(
    "file_format", ["torchscript", pytest.param("onnx", marks=pytest.mark.long)]
)
SMALL = {"fcnet_hiddens": [8]}
FLAT = spaces.Box(-1.0, 1.0, (3,), np.float32)
NESTED = spaces.Dict({"a": FLAT, "b": spaces.Tuple([spaces.Discrete(4), FLAT])})
PENDULUM = spaces.Box(-2.0, 3.0, (1,), np.float32)
CASES = {
    "discrete": (PPOConfig, FLAT, spaces.Discrete(3), SMALL),
    "discrete from 5": (PPOConfig, FLAT, spaces.Discrete(3, start=5), SMALL),
    "continuous": (PPOConfig, FLAT, PENDULUM, SMALL),
    "squashed": (SACConfig, FLAT, PENDULUM, SMALL),
    "several": (PPOConfig, FLAT, spaces.MultiDiscrete([2, 3]), SMALL),
    "nested observations": (PPOConfig, NESTED, spaces.Discrete(3), SMALL),
    "lstm": (PPOConfig, FLAT, spaces.Discrete(3), {**SMALL, "use_lstm": True}),
    "attention": (PPOConfig, FLAT, spaces.Discrete(3), {**SMALL, "use_attention": True}),
}


def module_of(name):
    config, observations, actions, options = CASES[name]
    torch.manual_seed(0)
    made = config().rl_module(model_config=options)
    return made.get_rl_module_spec((observations, actions)).build()


def inputs_of(policy, rows=ROWS):
    """Return inputs of another number of rows than the example has."""
    random = np.random.default_rng(1)
    return [
        np.stack([each[0].numpy()] * rows)
        if each.dtype != torch.float32
        else random.normal(size=(rows, *each.shape[1:])).astype(np.float32)
        for each in policy.example
    ]


def run(path, file_format, policy, inputs):
    if file_format == "torchscript":
        with torch.no_grad():
            return torch.jit.load(path)(*map(torch.as_tensor, inputs))
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    assert [each.name for each in session.get_inputs()] == policy.input_names
    assert [each.name for each in session.get_outputs()] == policy.output_names
    return session.run(None, dict(zip(policy.input_names, inputs, strict=True)))


@pytest.mark.parametrize("name", CASES)
@FORMATS
def test_a_program_gives_the_outputs_of_the_module(name, file_format, tmp_path):
    if file_format == "onnx":
        pytest.importorskip("onnxscript")
    module = module_of(name)
    path = export_module(module, str(tmp_path / "module"), file_format)
    policy = ExportedPolicy(module)
    inputs = inputs_of(policy)
    with torch.no_grad():
        wanted = policy(*map(torch.as_tensor, inputs))
    found = run(path, file_format, policy, inputs)
    assert len(found) == len(wanted) == len(policy.output_names)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one), other.numpy(), atol=1e-5)


@FORMATS
def test_an_algorithm_exports_what_it_does_in_the_environment(file_format, tmp_path):
    if file_format == "onnx":
        pytest.importorskip("onnxscript")
    made = PPOConfig().environment("Pendulum-v1").rl_module(model_config=SMALL)
    algo = made.env_runners(num_env_runners=0).reporting(record=False).build_algo()
    path = algo.export_model(file_format, str(tmp_path))[file_format]
    assert path == str(tmp_path / f"default_policy{EXTENSIONS[file_format]}")
    policy = ExportedPolicy(algo.get_module())
    observations = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
    actions = np.asarray(run(path, file_format, policy, [observations])[0])
    for obs, action in zip(observations, actions, strict=True):
        wanted = algo.compute_single_action(obs, explore=False)
        np.testing.assert_allclose(action, wanted, atol=1e-5)
    assert np.abs(actions).max() <= 2.0
    algo.stop()


def test_a_policy_of_older_programs_exports_its_own_actions(tmp_path):
    pytest.importorskip("onnxscript")
    made = PPOConfig().environment("Pendulum-v1").rl_module(model_config=SMALL)
    algo = made.env_runners(num_env_runners=0).reporting(record=False).build_algo()
    policy = algo.get_policy()
    policy.export_model(str(tmp_path), onnx=13)
    program = ExportedPolicy(algo.get_module())
    obs = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, -0.5]], np.float32)
    actions = np.asarray(run(str(tmp_path / "model.onnx"), "onnx", program, [obs])[0])
    wanted, _, _ = policy.compute_actions(obs, explore=False)
    np.testing.assert_allclose(actions, wanted, atol=1e-5)
    algo.stop()


def test_several_modules_are_files_in_a_directory(tmp_path):
    made = PPOConfig().environment(make_multi_agent("CartPole-v1"), env_config={"num_agents": 2})
    made.multi_agent(policies={"p0", "p1"}, policy_mapping_fn=lambda agent, *_, **__: f"p{agent}")
    made.env_runners(num_env_runners=0).rl_module(model_config=SMALL).reporting(record=False)
    algo = made.build_algo()
    assert algo.export_model("torchscript", str(tmp_path)) == {"torchscript": str(tmp_path)}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["p0.pt", "p1.pt"]
    algo.stop()


def test_an_unknown_format_is_an_error_with_the_nearest_name(tmp_path):
    with pytest.raises(ValueError, match="Did you mean 'onnx'"):
        export_module(module_of("discrete"), str(tmp_path / "x"), "onnxx")


def test_exporting_changes_nothing_in_the_module(tmp_path):
    module = module_of("discrete")
    module.train()
    before = [each.clone() for each in leaves(dict(module.state_dict()))]
    export_module(module, str(tmp_path / "m.pt"), "torchscript")
    assert module.training
    after = leaves(dict(module.state_dict()))
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
