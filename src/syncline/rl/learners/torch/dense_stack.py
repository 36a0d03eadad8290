"""`DenseStack`: gradients of small fully connected networks without autograd.

For layers of 64 to 256 units, torch's modules, graph and allocations take longer than the matrix
products. Here NumPy computes both passes on views of the parameters and on arrays that are reused
between updates; torch computes large products. Only linear layers, each followed by ReLU, tanh or
no activation, are supported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import nn

from syncline.rl.modules.torch.encoders import TorchMLPEncoder
from syncline.rl.modules.torch.heads import TorchMLPHead
from syncline.rl.value_types import Network

Activation = Literal["relu", "tanh", None]

_ACTIVATIONS: dict[type, Activation] = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Identity: None}

Scratch = dict[tuple[int, int], np.ndarray]

ALL_ROWS = slice(None)
LARGE_PRODUCT = 1 << 18
"""Number of multiplications up to which NumPy computes matrix products: its library is faster to
call, and starts no threads below this size.
"""
LARGE_VECTOR_PRODUCT = 9000
"""The same for products of a vector and a matrix."""
LARGE_ARRAY = 1 << 14
"""Number of elements in a layer's output from which torch is used."""

_threshold_backward = torch.ops.aten.threshold_backward.grad_input


class DenseStack:
    """Fully connected layers, [B, in] to [B, out].

    Each pass overwrites the arrays of the previous one. Not thread-safe.

    Args:
        layers: Linear layers on the CPU in float32, each with its activation.
        scratch: Arrays for gradients of hidden units. Stacks may share them to save cache if the
            result of one stack's `backward` is used before the next stack begins.
    """

    def __init__(
        self, layers: Sequence[tuple[nn.Linear, Activation]], scratch: Scratch | None = None
    ) -> None:
        self._scratch: Scratch = {} if scratch is None else scratch
        self.parameters = [each for layer, _ in layers for each in (layer.weight, layer.bias)]
        self._activations = [activation for _, activation in layers]
        self._widths = [layer.out_features for layer, _ in layers]
        self._pointers: tuple[int, ...] = ()
        self._size = 0
        self.bind()

    def bind(self) -> None:
        """Update the views if the parameters were moved to other memory."""
        pointers = tuple(each.data_ptr() for each in self.parameters)
        if pointers == self._pointers:
            return
        self._pointers = pointers
        arrays = [each.detach().numpy() for each in self.parameters]
        self._weights, self._biases = arrays[::2], arrays[1::2]
        gradients = [_gradient_view(each) for each in self.parameters]
        self._weight_gradients, self._bias_gradients = gradients[::2], gradients[1::2]

    def _allocate(self, size: int) -> None:
        self._size = size
        self._ones: np.ndarray = np.ones(size, np.float32)
        self._outputs = [np.empty((size, each), np.float32) for each in self._widths]

    def _add_rows(self, values: np.ndarray, out: np.ndarray) -> None:
        """Set `out` to the sum over the rows; for small arrays a matrix product is faster."""
        if values.size > LARGE_VECTOR_PRODUCT:
            values.sum(0, out=out)
        else:
            np.dot(self._ones[: len(values)], values, out=out)

    def _scratch_array(self, place: int, rows: int, width: int) -> np.ndarray:
        """Return the array for the gradient of a layer's inputs; adjacent layers do not share."""
        key = (place % 2, width)
        known = self._scratch.get(key)
        if known is None or len(known) < rows:
            known = self._scratch[key] = np.empty((max(rows, self._size), width), np.float32)
        return known[:rows]

    def forward(self, inputs: np.ndarray) -> np.ndarray:
        """Return the outputs, [B, out], for inputs in float32; valid until the next pass."""
        if len(inputs) != self._size:
            self._allocate(len(inputs))
        self._inputs = x = inputs
        for weight, bias, activation, out in zip(
            self._weights, self._biases, self._activations, self._outputs, strict=True
        ):
            _affine(x, weight.T, bias, out)
            _activate(activation, out)
            x = out
        return x

    def backward(
        self,
        gradient: np.ndarray,
        rows: np.ndarray | slice = ALL_ROWS,
        *,
        into_weights: bool = True,
        into_inputs: bool = False,
    ) -> np.ndarray:
        """Set the gradients of the weights for the latest pass; call it at most once per pass.

        Returns:
            The gradient of the inputs, [rows, in], if `into_inputs` is set, until the next call.

        Args:
            gradient: Gradient of the outputs of these rows, [rows, out]; overwritten.
            rows: Rows of the latest pass that have a gradient.
            into_weights: Set the gradients of the weights.
            into_inputs: Compute the gradient of the inputs.
        """
        for place in reversed(range(len(self._weights))):
            _through(self._activations[place], gradient, self._outputs[place][rows])
            before = self._outputs[place - 1] if place else self._inputs
            if into_weights:
                _product(gradient.T, before[rows], self._weight_gradients[place])
                self._add_rows(gradient, self._bias_gradients[place])
            if place or into_inputs:
                out = self._scratch_array(place, len(gradient), self._weights[place].shape[1])
                _product(gradient, self._weights[place], out)
                gradient = out
        return gradient


def _gradient_view(parameter: torch.Tensor) -> np.ndarray:
    """Return the gradient as an array; empty for frozen parameters."""
    found: np.ndarray = np.empty(0) if parameter.grad is None else parameter.grad.numpy()
    return found


def _product(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    if left.size * right.shape[1] > LARGE_PRODUCT:
        torch.mm(torch.from_numpy(left), torch.from_numpy(right), out=torch.from_numpy(out))
    else:
        np.dot(left, right, out=out)


def _affine(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, out: np.ndarray) -> None:
    if out.size >= LARGE_ARRAY or x.size * weight.shape[1] > LARGE_PRODUCT:
        terms = (torch.from_numpy(each) for each in (bias, x, weight))
        torch.addmm(*terms, out=torch.from_numpy(out))
    else:
        np.dot(x, weight, out=out)
        out += bias


def _activate(activation: Activation, x: np.ndarray) -> None:
    """Apply an activation in place."""
    if activation == "relu" and x.size >= LARGE_ARRAY:
        torch.from_numpy(x).relu_()
    elif activation == "relu":
        np.maximum(x, 0.0, out=x)
    elif activation == "tanh":
        np.tanh(x, out=x)


def _through(activation: Activation, gradient: np.ndarray, outputs: np.ndarray) -> None:
    """Multiply a gradient by the derivative of the activation; overwrites its outputs."""
    if activation == "relu" and outputs.size >= LARGE_ARRAY:
        change = torch.from_numpy(gradient)
        _threshold_backward(change, torch.from_numpy(outputs), 0.0, grad_input=change)
        return
    if activation == "relu":
        np.greater(outputs, 0.0, out=outputs, casting="unsafe")
    elif activation == "tanh":
        np.multiply(outputs, outputs, out=outputs)
        np.subtract(1.0, outputs, out=outputs)
    else:
        return
    gradient *= outputs


def dense_stack(*parts: Network, scratch: Scratch | None = None) -> DenseStack | None:
    """Return the concatenated layers of encoders and heads; None unless all are fully connected
    layers on the CPU in float32 without hooks.
    """
    layers: list[tuple[nn.Linear, Activation]] = []
    for part in parts:
        if type(part) not in (TorchMLPEncoder, TorchMLPHead):
            return None
        if getattr(part, "clip_log_std", False) or any(map(_is_observed, part.modules())):
            return None
        for layer in part.net.mlp:
            if type(layer) is nn.Linear and layer.bias is not None and _is_plain(layer):
                layers.append((layer, None))
            elif type(layer) in _ACTIVATIONS and layers and layers[-1][1] is None:
                layers[-1] = (layers[-1][0], _ACTIVATIONS[type(layer)])
            else:
                return None
    return DenseStack(layers, scratch) if layers else None


def _is_plain(layer: nn.Linear) -> bool:
    return all(
        each.device.type == "cpu" and each.dtype is torch.float32 and not each._backward_hooks
        for each in (layer.weight, layer.bias)
    )


def _is_observed(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in vars(module)
    )
