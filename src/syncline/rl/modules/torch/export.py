"""Export of modules as ONNX and TorchScript programs that act greedily, without syncline.

Inputs: the leaves of the observation, then those of the state of a module with memory; outputs:
the leaves of the actions, the inputs of the action distribution, and the next state. All have a
batch dimension of any length. With `scale_actions`, actions are in the environment's range. Not
covered: connectors, which are not part of the module.
"""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from syncline.optional import require
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, leaves, map_tree
from syncline.rl.runners.actions import is_normalized
from syncline.rl.value_types import ModuleType, Space
from syncline.suggestions import did_you_mean

ExportFormat = Literal["onnx", "torchscript"]
EXTENSIONS: dict[str, str] = {"onnx": ".onnx", "torchscript": ".pt"}
INSTALL = "syncline[rl-onnx]"
_ROWS = 2
"""Rows of the traced example; a single row would be traced as a constant."""


class ExportedPolicy(nn.Module):
    """Greedy acting of a module, with tensors as inputs and outputs.

    Args:
        module: The module.
        scale_actions: Return actions in the environment's range instead of [-1, 1].
    """

    def __init__(self, module: ModuleType, *, scale_actions: bool = True) -> None:
        super().__init__()
        self.module = module
        self.is_stateful = bool(module.is_stateful())
        self._dist_cls = _dist_cls(module)
        self._obs = example_of(module.observation_space)
        self._state = map_tree(
            lambda leaf: torch.as_tensor(np.asarray(leaf)).expand(_ROWS, *np.shape(leaf)).clone(),
            module.get_initial_state() if self.is_stateful else {},
        )
        self._space = module.action_space
        self._scale_actions = scale_actions

    @property
    def example(self) -> tuple[torch.Tensor, ...]:
        """Example of the inputs."""
        return (*leaves(self._obs), *leaves(self._state))

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs."""
        return [*_names("obs", self._obs), *_names("state_in", self._state)]

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        actions, inputs, state = self._act(self.example)
        return [
            *_names("actions", actions),
            *(["action_dist_inputs"] if inputs is not None else []),
            *_names("state_out", state),
        ]

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return actions, inputs of the distribution, and the next state."""
        actions, dist_inputs, state = self._act(inputs)
        more = () if dist_inputs is None else (dist_inputs,)
        return (*leaves(actions), *more, *leaves(state))

    def _act(self, inputs: tuple[torch.Tensor, ...]) -> tuple[Tree, torch.Tensor | None, Tree]:
        given = iter(inputs)
        batch: dict[str, Tree] = {Columns.OBS: map_tree(lambda _: next(given), self._obs)}
        if self.is_stateful:
            batch[Columns.OBS] = map_tree(lambda leaf: leaf.unsqueeze(1), batch[Columns.OBS])
            batch[Columns.STATE_IN] = map_tree(lambda _: next(given), self._state)
        output = dict(self.module._forward_inference(batch))
        state = output.pop(Columns.STATE_OUT, {})
        if self.is_stateful:
            output = {
                name: map_tree(lambda leaf: leaf[:, 0], each) for name, each in output.items()
            }
        dist_inputs = output.get(Columns.ACTION_DIST_INPUTS)
        actions = output.get(Columns.ACTIONS)
        if actions is None:
            actions = self._dist_cls.from_logits(dist_inputs).to_deterministic().sample()
        return self._for_env(actions), dist_inputs, state

    def _for_env(self, actions: Tree) -> Tree:
        space = self._space
        if isinstance(space, gym.spaces.Discrete) and space.start:
            return actions + int(space.start)
        if not (self._scale_actions and is_normalized(space)):
            return actions
        low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
        half, centre = (high - low) / 2.0, (high + low) / 2.0
        return torch.minimum(torch.maximum(centre + half * actions, low), high)


def export_module(
    module: ModuleType, path: str, file_format: ExportFormat, *, scale_actions: bool = True
) -> str:
    """Export a module as a program; return the path.

    Args:
        module: A `TorchRLModule`.
        path: Output file; its directory is created if missing.
        file_format: "onnx" or "torchscript".
        scale_actions: See `ExportedPolicy`.

    Raises:
        ValueError: The format is unknown.
        ImportError: A library for ONNX is not installed.
    """
    if file_format not in EXTENSIONS:
        raise ValueError(
            f"`export_formats={file_format!r}` is unknown."
            f"{did_you_mean(str(file_format), EXTENSIONS)} Formats: {', '.join(EXTENSIONS)}."
        )
    was_training = module.training
    module.eval()
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    policy = ExportedPolicy(module, scale_actions=scale_actions).eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # shape checks are traced as constants
            if file_format == "onnx":
                _write_onnx(policy, path)
            else:
                trace: Any = torch.jit.trace  # untyped
                trace(policy, policy.example, check_trace=False).save(path)
    finally:
        module.train(was_training)
    return path


def _write_onnx(policy: ExportedPolicy, path: str) -> None:
    for library in ("onnx", "onnxscript"):
        require(library, purpose="An ONNX export", install=INSTALL)
    batch = torch.export.Dim("batch")
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = registration.level
    registration.setLevel(logging.ERROR)  # it warns if torchvision is not installed
    try:
        torch.onnx.export(
            policy,
            policy.example,
            path,
            input_names=policy.input_names,
            output_names=policy.output_names,
            dynamic_shapes=(tuple({0: batch} for _ in policy.example),),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    finally:
        registration.setLevel(level)


def example_of(space: Space) -> Tree:
    """Return random observations of a space as tensors, [2, …]."""
    if isinstance(space, gym.spaces.Dict):
        return {key: example_of(each) for key, each in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(example_of(each) for each in space.spaces)
    array = np.stack([np.asarray(space.sample()) for _ in range(_ROWS)])
    return torch.as_tensor(array.astype(np.float32) if array.dtype == np.float64 else array)


def _names(prefix: str, tree: Tree) -> list[str]:
    """Return a name for each leaf: "obs", or "obs.key" if nested."""
    if isinstance(tree, dict):
        return [name for key, each in tree.items() for name in _names(f"{prefix}.{key}", each)]
    if isinstance(tree, (tuple, list)):
        return [name for key, each in enumerate(tree) for name in _names(f"{prefix}.{key}", each)]
    return [prefix]


def _dist_cls(module: ModuleType) -> Any:
    try:
        return module.get_inference_action_dist_cls()
    except (NotImplementedError, ValueError):  # the module returns actions itself
        return None
