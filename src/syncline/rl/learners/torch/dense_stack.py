"""`DenseStack`: gradients of small fully connected networks without autograd.

For layers of 64 to 256 units, modules, graph and allocations of torch take longer than the
products. Here NumPy computes both passes on views of the parameters, and on arrays that are kept
between updates. Not covered: anything but linear layers, each followed by ReLU, tanh or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from syncline.rl.modules.torch.encoders import TorchMLPEncoder
from syncline.rl.modules.torch.heads import TorchMLPHead

Activation = Literal["relu", "tanh", None]

_ACTIVATIONS: dict[type, Activation] = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Identity: None}


class DenseStack:
    """Fully connected layers, [B, in] to [B, out].

    A pass overwrites the arrays of the one before. Not thread-safe.

    Args:
        layers: Linear layers on the CPU in float32 and the activation after each.
    """

    def __init__(self, layers: Sequence[tuple[nn.Linear, Activation]]) -> None:
        self.parameters = [each for layer, _ in layers for each in (layer.weight, layer.bias)]
        self._activations = [activation for _, activation in layers]
        self._widths = [layer.out_features for layer, _ in layers]
        self._pointers: tuple[int, ...] = ()
        self._size = 0
        self.bind()

    def bind(self) -> None:
        """Follow parameters that got other memory."""
        pointers = tuple(each.data_ptr() for each in self.parameters)
        if pointers == self._pointers:
            return
        self._pointers = pointers
        arrays = [each.detach().numpy() for each in self.parameters]
        self._weights, self._biases = arrays[::2], arrays[1::2]
        gradients = [None if each.grad is None else each.grad.numpy() for each in self.parameters]
        self._weight_gradients, self._bias_gradients = gradients[::2], gradients[1::2]

    def _allocate(self, size: int, width: int) -> None:
        self._size = size
        self._ones: np.ndarray = np.ones(size, np.float32)
        self._outputs = [np.empty((size, each), np.float32) for each in self._widths]
        self._of_inputs = [np.empty((size, each), np.float32) for each in (width, *self._widths)]

    def forward(self, inputs: np.ndarray) -> np.ndarray:
        """Return the outputs, [B, out], for inputs in float32; valid until the next pass."""
        if len(inputs) != self._size:
            self._allocate(len(inputs), inputs.shape[1])
        self._inputs = x = inputs
        for weight, bias, activation, out in zip(
            self._weights, self._biases, self._activations, self._outputs, strict=True
        ):
            x = np.dot(x, weight.T, out=out)
            x += bias
            if activation == "relu":
                np.maximum(x, 0.0, out=x)
            elif activation == "tanh":
                np.tanh(x, out=x)
        return x

    def backward(
        self,
        gradient: np.ndarray,
        rows: int | None = None,
        *,
        into_weights: bool = True,
        into_inputs: bool = False,
    ) -> np.ndarray:
        """Set the gradients of the weights for the latest pass; at most once for each pass.

        Returns:
            The gradient of the inputs, [rows, in], if `into_inputs` is set.

        Args:
            gradient: Gradient of the outputs, [rows, out]; overwritten.
            rows: Number of first rows that have a gradient; None for all.
            into_weights: Set the gradients of the weights.
            into_inputs: Continue to the inputs.
        """
        for place in reversed(range(len(self._weights))):
            _through(self._activations[place], gradient, self._outputs[place][:rows])
            before = self._outputs[place - 1] if place else self._inputs
            if into_weights:
                np.dot(gradient.T, before[:rows], out=self._weight_gradients[place])
                np.dot(self._ones[:rows], gradient, out=self._bias_gradients[place])
            if place or into_inputs:
                out = self._of_inputs[place][:rows]
                gradient = np.dot(gradient, self._weights[place], out=out)
        return gradient


def _through(activation: Activation, gradient: np.ndarray, outputs: np.ndarray) -> None:
    """Multiply a gradient by the derivative of the activation; overwrites its outputs."""
    if activation == "relu":
        np.greater(outputs, 0.0, out=outputs, casting="unsafe")
    elif activation == "tanh":
        np.multiply(outputs, outputs, out=outputs)
        np.subtract(1.0, outputs, out=outputs)
    else:
        return
    gradient *= outputs


def dense_stack(*parts: Any) -> DenseStack | None:
    """Return the layers of encoders and heads, one after the other; None if they are more than
    fully connected layers on the CPU in float32, or if anybody observes them.
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
    return DenseStack(layers) if layers else None


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
