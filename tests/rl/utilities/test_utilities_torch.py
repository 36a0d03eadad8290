"""Functions that programs import from `rllib.utils`."""

import argparse

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rllib.algorithms.ppo import PPOConfig
from syncline.rllib.evaluation.postprocessing import Postprocessing, compute_advantages
from syncline.rllib.policy.sample_batch import SampleBatch
from syncline.rllib.utils.framework import try_import_tf, try_import_torch
from syncline.rllib.utils.numpy import (
    convert_to_numpy,
    fc,
    flatten_inputs_to_1d_tensor,
    huber_loss,
    one_hot,
    one_hot_multidiscrete,
    relu,
    sigmoid,
    softmax,
)
from syncline.rllib.utils.schedules import (
    ExponentialSchedule,
    LinearSchedule,
    PiecewiseSchedule,
    PolynomialSchedule,
)
from syncline.rllib.utils.spaces.simplex import Simplex
from syncline.rllib.utils.spaces.space_utils import (
    batch,
    clip_action,
    flatten_space,
    flatten_to_single_ndarray,
    get_base_struct_from_space,
    get_dummy_batch_for_space,
    normalize_action,
    unbatch,
    unsquash_action,
)
from syncline.rllib.utils.test_utils import (
    add_rllib_example_script_args,
    check,
    run_rllib_example_script_experiment,
)
from syncline.rllib.utils.torch_utils import (
    convert_to_torch_tensor,
    explained_variance,
    inverse_symlog,
    sequence_mask,
    symlog,
)

NESTED = gym.spaces.Dict(
    {"a": gym.spaces.Discrete(3), "b": gym.spaces.Tuple([gym.spaces.Box(-2, 2, (2,))])}
)


def test_array_functions():
    assert one_hot([0, 2]).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert one_hot_multidiscrete([[1, 0]], [2, 3]).tolist() == [[0, 1, 1, 0, 0]]
    np.testing.assert_allclose(softmax([0.0, np.log(3.0)]), [0.25, 0.75])
    assert sigmoid(0.0) == 0.5
    assert relu([-1.0, 2.0]).tolist() == [0, 2]
    assert huber_loss([0.5, 3.0]).tolist() == [0.125, 2.5]
    layer = torch.nn.Linear(3, 2)
    x = torch.randn(4, 3)
    found = fc(x, layer.weight, layer.bias, framework="torch")
    np.testing.assert_allclose(found, layer(x).detach(), rtol=1e-5)
    converted = convert_to_numpy({"a": torch.zeros(2, dtype=torch.float64), "b": [1]})
    assert converted["a"].dtype == np.float32
    values = {"a": np.array([2]), "b": (np.array([[5.0, 6.0]]),)}
    assert flatten_inputs_to_1d_tensor(values, NESTED).tolist() == [[0, 0, 1, 5, 6]]


def test_tensor_functions():
    assert convert_to_torch_tensor({"a": np.zeros(2)})["a"].dtype is torch.float32
    assert sequence_mask(torch.tensor([1, 3])).tolist() == [[True, False, False], [True] * 3]
    x = torch.linspace(-5, 5, 11)
    torch.testing.assert_close(inverse_symlog(symlog(x)), x)
    assert explained_variance(x, x) == 1
    assert explained_variance(x, 10 * x) == -1


def test_space_functions():
    box = gym.spaces.Box(np.float32(-2), np.float32(4), (1,))
    assert unsquash_action(np.array([0.0]), box) == 1
    assert clip_action(np.array([9.0]), box) == 4
    assert normalize_action(np.array([4.0]), box) == 1
    assert len(flatten_space(NESTED)) == 2
    assert isinstance(get_base_struct_from_space(NESTED)["b"], tuple)
    items = [NESTED.sample() for _ in range(3)]
    check(unbatch(batch(items)), items)
    assert flatten_to_single_ndarray((1, np.zeros(2))).tolist() == [1, 0, 0]
    dummy = get_dummy_batch_for_space(NESTED, 4, fill_value="random", time_size=2)
    assert dummy["b"][0].shape == (4, 2, 2)
    simplex = Simplex((3,))
    assert simplex.contains(simplex.sample())
    assert not simplex.contains(np.ones(3))
    with pytest.raises(ValueError, match="empty list"):
        batch([])


def test_schedules():
    assert LinearSchedule(schedule_timesteps=10, final_p=0.0)(5) == 0.5
    assert PolynomialSchedule(10, 0.0, power=2.0)(5) == 0.25
    assert ExponentialSchedule(10, initial_p=1.0, decay_rate=0.01)(5) == pytest.approx(0.1)
    piecewise = PiecewiseSchedule([(0, 1.0), (10, 0.0)], outside_value=-1.0)
    assert [piecewise(t) for t in (0, 5, 10)] == [1.0, 0.5, -1.0]


def test_advantages_of_a_batch():
    rows = {"rewards": [1.0, 1.0, 1.0], "vf_preds": [0.5, 0.5, 0.5]}
    made = compute_advantages(SampleBatch(rows), last_r=2.0, gamma=0.5, lambda_=1.0)
    returns = np.array([2.0, 2.0, 2.0])
    np.testing.assert_allclose(made[Postprocessing.VALUE_TARGETS], returns)
    np.testing.assert_allclose(made[Postprocessing.ADVANTAGES], returns - 0.5)
    plain = compute_advantages(SampleBatch(rows), 0.0, 1.0, use_gae=False, use_critic=False)
    assert plain[Postprocessing.ADVANTAGES].tolist() == [3, 2, 1]


def test_comparisons():
    check({"a": [1.0, torch.ones(2)]}, {"a": [1.000001, np.ones(2)]})
    check(1.0, 2.0, false=True)
    with pytest.raises(AssertionError):
        check([1.0], [1.1])
    with pytest.raises(AssertionError, match="must not be"):
        check(1.0, 1.0, false=True)


def test_optional_frameworks():
    assert try_import_torch()[0] is torch
    assert try_import_tf() == (None, None, None)
    with pytest.raises(ImportError, match="torch"):
        try_import_tf(error=True)


def test_example_scripts_train_as_their_arguments_say():
    parser = add_rllib_example_script_args(argparse.ArgumentParser(), default_iters=2)
    args = parser.parse_args(["--no-tune", "--num-env-runners=0", "--env=CartPole-v1"])
    config = PPOConfig().training(train_batch_size=64, minibatch_size=32, num_epochs=1)
    result = run_rllib_example_script_experiment(config, args)
    assert result["training_iteration"] == 2
