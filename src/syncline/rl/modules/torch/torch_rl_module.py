"""`TorchRLModule`: the base class of modules with networks, and its wrapper for DDP."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from syncline.rl.checkpointable import StateDict
from syncline.rl.modules.acting import ActingPolicy
from syncline.rl.modules.apis import InferenceOnlyAPI
from syncline.rl.modules.rl_module import Batch, RLModule
from syncline.rl.modules.torch.distributions.categorical import TorchCategorical
from syncline.rl.modules.torch.distributions.gaussian import TorchDiagGaussian
from syncline.rl.modules.torch.torch_acting import TorchActing
from syncline.rl.value_types import ModuleType, Options, Tree


@dataclass
class TorchCompileConfig:
    """Options of `torch.compile` for the forward methods of a module."""

    torch_dynamo_backend: str = "aot_eager" if sys.platform == "darwin" else "inductor"
    """Backend of the compiler."""
    torch_dynamo_mode: str | None = None
    """Mode of the backend, such as "reduce-overhead"."""
    kwargs: Options = field(default_factory=dict)
    """Other arguments of `torch.compile`."""


class TorchRLModule(nn.Module, RLModule):
    """A module that consists of torch modules, created in `setup`.

    Batches contain tensors. `_forward_inference` and `_forward_exploration` compute no gradients.
    For modules with memory, `get_initial_state` returns a dict; batches are sequences [S, L, ...]
    with the state before their first step, [S, ...], and outputs contain `state_out`.
    """

    framework = "torch"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        nn.Module.__init__(self)
        RLModule.__init__(self, *args, **kwargs)
        if self.inference_only and isinstance(self, InferenceOnlyAPI):
            for name in self.get_non_inference_attributes():
                _delete(self, name)

    def compile(self, compile_config: Any = None, *args: object, **kwargs: object) -> None:
        """Compile the three forward methods."""
        config = compile_config or TorchCompileConfig()
        for name in ("_forward_train", "_forward_inference", "_forward_exploration"):
            compiled = torch.compile(
                getattr(self, name),
                backend=config.torch_dynamo_backend,
                mode=config.torch_dynamo_mode,
                **config.kwargs,
            )
            setattr(self, name, compiled)

    def forward_inference(self, batch: Batch, **kwargs: object) -> Batch:
        """Call `_forward_inference` in evaluation mode."""
        return self._in_evaluation_mode(self._forward_inference, batch, kwargs)

    def forward_exploration(self, batch: Batch, **kwargs: object) -> Batch:
        """Call `_forward_exploration` in evaluation mode."""
        return self._in_evaluation_mode(self._forward_exploration, batch, kwargs)

    def _in_evaluation_mode(
        self, forward: Callable[..., Batch], batch: Batch, kwargs: Options
    ) -> Batch:
        if not self.training:
            output: Batch = forward(batch, **kwargs)
            return output
        self.eval()
        try:
            output = forward(batch, **kwargs)
        finally:
            self.train()
        return output

    def forward_train(self, batch: Batch, **kwargs: object) -> Batch:
        """Call `_forward_train` in training mode."""
        if not self.training:
            self.train()
        return RLModule.forward_train(self, batch, **kwargs)

    def forward(self, batch: Batch, **kwargs: object) -> Batch:
        """Call `forward_train`, as DDP requires; modules for inference call `forward_inference`."""
        if self.inference_only:
            return self.forward_inference(batch, **kwargs)
        return self.forward_train(batch, **kwargs)

    def _forward_inference(self, batch: Batch, **kwargs: object) -> Batch:
        with torch.no_grad():
            return self._forward(batch, **kwargs)

    def _forward_exploration(self, batch: Batch, **kwargs: object) -> Batch:
        with torch.no_grad():
            return self._forward(batch, **kwargs)

    def acting_policy(self) -> ActingPolicy:
        """Return the step from observations to actions. See `acting.acting_policy`."""
        return TorchActing(self)

    def compiled_acting_policy(self, *, backend: str, mode: str | None) -> ActingPolicy:
        """Return an acting policy with forward passes compiled by torch."""
        return TorchActing(self, compile_options={"backend": backend, "mode": mode})

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        inference_only: bool = False,
        **kwargs: Any,
    ) -> StateDict:
        """Return copies of the weights as NumPy arrays."""
        return {
            name: _to_numpy(value)
            for name, value in self.state_dict().items()
            if not (inference_only and self._is_for_training(name))
        }

    def set_state(self, state: StateDict) -> None:
        """Set the weights in place; ignore weights that this module does not have.

        Weights that are missing in `state` do not change and cause a warning, unless only training
        needs them.

        Raises:
            ValueError: Weights have different shapes, all are missing, or some are missing and the
                module is for inference only.
        """
        tensors = {name: _to_tensor(value) for name, value in state.items()}
        try:
            missing, unexpected = self.load_state_dict(tensors, strict=False)
        except RuntimeError as error:
            raise ValueError(
                f"The state does not fit this {type(self).__name__}: {error}. Build the module "
                "with the spaces and `model_config` of the saved module."
            ) from error
        missing = [name for name in missing if not self._is_for_training(name)]
        if not missing:
            return
        text = (
            f"The state lacks {', '.join(missing)} of this {type(self).__name__}; unused keys: "
            f"{', '.join(unexpected) or 'none'}. Build the module with the `model_config` of "
            "the saved module."
        )
        if self.inference_only or len(unexpected) == len(state):
            raise ValueError(text)
        warnings.warn(text, stacklevel=2)

    def _is_for_training(self, name: str) -> bool:
        """Return True for weights that acting does not need."""
        if not isinstance(self, InferenceOnlyAPI):
            return False
        return any(
            name == part or name.startswith(f"{part}.")
            for part in self.get_non_inference_attributes()
        )

    def get_inference_action_dist_cls(self) -> type[Any]:
        """Return `action_dist_cls`, or the default class for the action space."""
        if self.action_dist_cls is not None:
            return self.action_dist_cls
        if isinstance(self.action_space, gym.spaces.Discrete):
            return TorchCategorical
        if isinstance(self.action_space, gym.spaces.Box):
            return TorchDiagGaussian
        raise ValueError(
            f"{type(self).__name__} has no action distribution for {self.action_space}. Set "
            "`self.action_dist_cls` in `setup`, or pass a `catalog_class`."
        )


class TorchDDPRLModule(RLModule, nn.parallel.DistributedDataParallel):
    """A module inside DDP; all calls except training passes go to the inner module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        nn.parallel.DistributedDataParallel.__init__(self, *args, **kwargs)
        inner = self.unwrapped()
        self.observation_space, self.action_space = inner.observation_space, inner.action_space
        self.inference_only, self.learner_only = inner.inference_only, inner.learner_only
        self.model_config, self.catalog = inner.model_config, inner.catalog
        self.framework = inner.framework

    def unwrapped(self) -> ModuleType:
        """Return the inner module."""
        return self.module

    def _forward(self, batch: Batch, **kwargs: object) -> Batch:
        return dict(self.unwrapped()._forward(batch, **kwargs))

    def _forward_inference(self, batch: Batch, **kwargs: object) -> Batch:
        return dict(self.unwrapped()._forward_inference(batch, **kwargs))

    def _forward_exploration(self, batch: Batch, **kwargs: object) -> Batch:
        return dict(self.unwrapped()._forward_exploration(batch, **kwargs))

    def _forward_train(self, batch: Batch, **kwargs: object) -> Batch:
        return dict(self(batch, **kwargs))

    def get_initial_state(self) -> Tree:
        """Return the inner module's initial state."""
        return self.unwrapped().get_initial_state()

    def is_stateful(self) -> bool:
        """Return True if the inner module is stateful."""
        return bool(self.unwrapped().is_stateful())

    def get_inference_action_dist_cls(self) -> type[Any]:
        """Return the inner module's class."""
        cls: type[object] = self.unwrapped().get_inference_action_dist_cls()
        return cls

    def get_exploration_action_dist_cls(self) -> type[Any]:
        """Return the inner module's class."""
        cls: type[object] = self.unwrapped().get_exploration_action_dist_cls()
        return cls

    def get_train_action_dist_cls(self) -> type[Any]:
        """Return the inner module's class."""
        cls: type[object] = self.unwrapped().get_train_action_dist_cls()
        return cls

    def acting_policy(self) -> ActingPolicy:
        """Return that of the inner module."""
        policy: ActingPolicy = self.unwrapped().acting_policy()
        return policy

    def get_state(self, *args: Any, **kwargs: Any) -> StateDict:
        """Return the inner module's weights."""
        return dict(self.unwrapped().get_state(*args, **kwargs))

    def set_state(self, state: StateDict) -> None:
        """Set the inner module's weights."""
        self.unwrapped().set_state(state)

    def save_to_path(self, *args: object, **kwargs: object) -> str:
        """Save the inner module."""
        return str(self.unwrapped().save_to_path(*args, **kwargs))

    def restore_from_path(self, *args: object, **kwargs: object) -> None:
        """Restore the inner module."""
        self.unwrapped().restore_from_path(*args, **kwargs)


def _delete(module: object, name: str) -> None:
    """Delete an attribute, given as a dotted path, if it exists."""
    *path, last = name.split(".")
    for part in path:
        module = getattr(module, part, None)
    if module is not None and hasattr(module, last):
        delattr(module, last)


def _to_tensor(value: object) -> Tree:
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        value = value.copy()  # torch warns about arrays in shared memory
    return torch.as_tensor(value) if isinstance(value, np.ndarray | np.generic) else value


def _to_numpy(value: object) -> Tree:
    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype is torch.bfloat16:  # NumPy lacks this dtype
        value = value.float()
    return np.array(value.detach().cpu().numpy())
