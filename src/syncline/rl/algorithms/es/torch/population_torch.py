"""Populations: policies of the same shape with different weights, batched."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, vmap

from syncline.rl.columns.trees import map_tree
from syncline.rl.modules.numpy_acting import ACTIVATIONS, ActivationName
from syncline.rl.value_types import ModuleType, Tree

_ACTIVATIONS: dict[type, ActivationName] = {
    nn.Tanh: "tanh",
    nn.ReLU: "relu",
    nn.SiLU: "silu",
    nn.ELU: "elu",
    nn.Identity: "linear",
}


class Population(Protocol):
    """S policies; policy s acts on row s of the observations."""

    def set(self, place: int, theta: np.ndarray) -> None:
        """Set the weights [P] of the policy at an index."""
        ...

    def keep(self, places: list[int]) -> None:
        """Keep only the policies at these indices."""
        ...

    def outputs(self, obs: Tree) -> np.ndarray:
        """Return the outputs [S, K] for observations [S, …]."""
        ...


class NumpyPopulation:
    """Fully connected policies as stacked matrices.

    Every policy is multiplied separately, so its outputs do not depend on the other policies.

    Args:
        layers: Layers in order; the others are activations.
        parameters: All parameters, in the order in which weights [P] contain them.
        thetas: Weights, [S, P].
        mean: Subtracted from observations, [D].
        scale: Multiplied with the difference, [D].
    """

    def __init__(
        self,
        layers: list[nn.Module],
        parameters: list[nn.Parameter],
        thetas: np.ndarray,
        mean: np.ndarray,
        scale: np.ndarray,
    ) -> None:
        self._layers = layers
        self._parameters = parameters
        self._mean, self._scale = mean, scale
        self._thetas = thetas
        self._bind()

    def _bind(self) -> None:
        """Make views of the weights: (weight [S, out, in], bias [S, out], activation)."""
        starts = dict(
            zip(
                map(id, self._parameters),
                np.cumsum([0, *(each.numel() for each in self._parameters)]),
                strict=False,
            )
        )

        def view(parameter: torch.Tensor) -> np.ndarray:
            start = starts[id(parameter)]
            part = self._thetas[:, start : start + parameter.numel()]
            return part.reshape(len(part), *parameter.shape)

        self._bound: list[tuple[np.ndarray, np.ndarray | None, Any]] = []
        for layer in self._layers:
            if isinstance(layer, nn.Linear):
                bias: Any = layer.bias
                self._bound.append((view(layer.weight), None if bias is None else view(bias), None))
            else:
                weight, own_bias, _ = self._bound.pop()
                self._bound.append((weight, own_bias, ACTIVATIONS[_ACTIVATIONS[type(layer)]]))

    def set(self, place: int, theta: np.ndarray) -> None:
        """Set the weights of the policy at an index."""
        self._thetas[place] = theta

    def keep(self, places: list[int]) -> None:
        """Keep only the policies at these indices."""
        self._thetas = self._thetas[places]
        self._bind()

    def outputs(self, obs: np.ndarray) -> np.ndarray:
        """Return the outputs [S, K] for observations [S, D]."""
        x: np.ndarray = ((obs - self._mean) * self._scale).astype(np.float32)
        for weight, bias, activation in self._bound:
            x = np.matmul(weight, x[:, :, None])[:, :, 0]
            if bias is not None:
                x += bias
            if activation is not None:
                activation(x)
        return x


class TorchPopulation:
    """Policies of any structure, computed with `torch.vmap` over their weights.

    Args:
        module: Module with a method `policy_outputs(obs)`.
        thetas: Weights, [S, P].
    """

    def __init__(self, module: ModuleType, thetas: np.ndarray) -> None:
        self._policy = _Policy(module)
        self._named = [(f"module.{name}", each) for name, each in module.named_parameters()]
        self._thetas = torch.from_numpy(thetas)

        def outputs(theta: torch.Tensor, obs: Tree) -> Tree:
            sizes = [each.numel() for _, each in self._named]
            weights = {
                name: part.view(each.shape)
                for (name, each), part in zip(self._named, torch.split(theta, sizes), strict=True)
            }
            one = map_tree(lambda leaf: leaf.unsqueeze(0), obs)
            return functional_call(self._policy, weights, (one,)).squeeze(0)

        self._outputs = vmap(outputs)

    def set(self, place: int, theta: np.ndarray) -> None:
        """Set the weights of the policy at an index."""
        self._thetas[place] = torch.from_numpy(theta)

    def keep(self, places: list[int]) -> None:
        """Keep only the policies at these indices."""
        self._thetas = self._thetas[places]

    def outputs(self, obs: Tree) -> np.ndarray:
        """Return the outputs [S, K] for observations [S, …]."""
        with torch.no_grad():
            found: np.ndarray = self._outputs(self._thetas, map_tree(_tensor, obs)).numpy()
        return found


class _Policy(nn.Module):
    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        self.module = module

    def forward(self, obs: Tree) -> Any:
        return self.module.policy_outputs(obs)


def simple_layers(stacks: list[nn.Sequential]) -> list[nn.Module] | None:
    """Return the layers of stacks in order; None unless they are linear layers, each followed by
    at most one known activation.
    """
    layers = [layer for stack in stacks for layer in stack]
    before: type | None = None
    for layer in layers:
        if type(layer) is not nn.Linear and (
            type(layer) not in _ACTIVATIONS or before is not nn.Linear
        ):
            return None
        before = type(layer)
    return layers


def _tensor(leaf: Tree) -> torch.Tensor:
    tensor = torch.as_tensor(leaf)
    return tensor.float() if tensor.dtype == torch.float64 else tensor
