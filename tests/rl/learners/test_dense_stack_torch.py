"""Passes of `DenseStack` are those of autograd, for small layers and for large ones."""

import numpy as np
import pytest
import torch

from syncline.rl.learners.torch.dense_stack import dense_stack
from syncline.rl.modules.torch.heads import MLPHeadConfig


def head(width, activation="relu", **options):
    torch.manual_seed(0)
    built = MLPHeadConfig(
        input_dims=[5],
        hidden_layer_dims=[width, width],
        hidden_layer_activation=activation,
        output_layer_dim=3,
        **options,
    ).build()
    for each in built.parameters():
        each.grad = torch.zeros_like(each)
    return built


def drawn(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("activation", ["relu", "tanh", "linear"])
@pytest.mark.parametrize(("width", "rows"), [(7, 9), (130, 200)])
def test_both_passes_are_those_of_autograd(width, rows, activation):
    module = head(width, activation)
    stack = dense_stack(module)
    inputs, change = drawn(rows, 5), drawn(rows, 3)
    found = stack.forward(inputs).copy()
    of_inputs = stack.backward(change.copy(), into_inputs=True)
    own = [each.grad.clone() for each in module.parameters()]
    for each in module.parameters():
        each.grad = None
    given = torch.from_numpy(inputs).requires_grad_()
    outputs = module(given)
    outputs.backward(torch.from_numpy(change))
    np.testing.assert_allclose(found, outputs.detach(), atol=1e-5)
    np.testing.assert_allclose(of_inputs, given.grad, atol=1e-4)
    for mine, each in zip(own, module.parameters(), strict=True):
        torch.testing.assert_close(mine, each.grad, atol=1e-3, rtol=1e-4)


def test_some_rows_get_gradients_and_weights_stay_without_if_asked():
    module = head(6)
    stack = dense_stack(module)
    chosen, inputs = np.array([1, 4]), drawn(5, 5)
    stack.forward(inputs)
    found = stack.backward(
        np.ones((2, 3), np.float32), chosen, into_weights=False, into_inputs=True
    )
    assert all((each.grad == 0).all() for each in module.parameters())
    given = torch.from_numpy(inputs).requires_grad_()
    module(given).sum().backward()
    np.testing.assert_allclose(found, given.grad[chosen], atol=1e-5)


def test_parameters_with_other_memory_are_followed():
    module = head(6)
    stack = dense_stack(module)
    for each in module.parameters():
        each.data = torch.zeros_like(each)
    stack.bind()
    assert (stack.forward(drawn(2, 5)) == 0).all()


def test_other_layers_have_no_stack():
    assert dense_stack(torch.nn.Linear(2, 2)) is None
    assert dense_stack(head(4, "silu")) is None
    assert dense_stack(head(4, hidden_layer_use_layernorm=True)) is None
    assert dense_stack(head(4, hidden_layer_use_bias=False)) is None
    assert dense_stack(head(4).double()) is None
    hooked = head(4)
    hooked.net.mlp[0].register_forward_hook(lambda *args: None)
    assert dense_stack(hooked) is None
