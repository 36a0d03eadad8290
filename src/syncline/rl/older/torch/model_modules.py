"""Networks from older releases as modules with policy and value function, and as encoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from syncline.rl.columns.names import Columns
from syncline.rl.modules.apis import ValueFunctionAPI
from syncline.rl.modules.rl_module import Batch
from syncline.rl.modules.torch.catalog import Catalog
from syncline.rl.modules.torch.models import ENCODER_OUT
from syncline.rl.modules.torch.torch_rl_module import TorchRLModule
from syncline.rl.older.model_config import MODEL_DEFAULTS
from syncline.rl.older.torch.action_dists import adapted
from syncline.rl.older.torch.model_v2 import OBS, OBS_FLAT, packed, preprocessed_space
from syncline.rl.older.torch.networks import FullyConnectedNetwork, VisionNetwork
from syncline.rl.value_types import CheckedSpace, Network, Options, Results, Space, Tree

FEATURES = 256
"""Default number of features of a network used as encoder."""


def built_model(
    cls: type,
    observation_space: Space,
    action_space: Space,
    outputs: int | None,
    config: Any,
    name: str,
) -> Network:
    """Create a network from older releases.

    Raises:
        TypeError: Its constructor takes different arguments.
    """
    older = config.get("older_model") or {**MODEL_DEFAULTS, **config}
    space = preprocessed_space(observation_space)
    own = dict(older.get("custom_model_config") or {})
    try:
        return cls(space, action_space, outputs, older, name, **own)
    except TypeError as error:
        raise TypeError(
            f"{cls.__name__}({space}, {action_space}, {outputs}, model_config, {name!r}"
            f"{', ' + ', '.join(own) if own else ''}) failed: {error}. Models from older releases "
            "take (obs_space, action_space, num_outputs, model_config, name) and the keys of "
            "`custom_model_config`."
        ) from error


def default_model(space: CheckedSpace) -> type:
    """Return the default network for flat observations or images."""
    return VisionNetwork if len(space.shape) == 3 else FullyConnectedNetwork


class ModelV2Module(TorchRLModule, ValueFunctionAPI):
    """Adapts a `TorchModelV2` to a module with a policy and a value function.

    `model_config["custom_model"]` is its class, `custom_action_dist` its distribution class.
    """

    def setup(self) -> None:
        """Create the network and the class of its distributions."""
        config = self.model_config
        given = config.get("custom_action_dist")
        space = self.action_space
        self._default_dist: Any = None
        if given is None:
            catalog = Catalog(self.observation_space, space, {"fcnet_hiddens": [1]})
            self._default_dist = catalog.get_action_dist_cls(framework="torch")
            outputs = int(self._default_dist.required_input_dim(space))
        else:
            outputs = given.required_model_output_shape(space, config)
            outputs = int(np.prod(outputs)) if isinstance(outputs, tuple) else outputs
        cls = config.get("custom_model") or default_model(
            preprocessed_space(self.observation_space)
        )
        self.model_v2 = built_model(
            cls, self.observation_space, space, outputs, config, "default_policy"
        )
        self.action_dist_cls = self._default_dist or adapted(given, self.model_v2)

    def get_initial_state(self) -> Tree:
        """Return the network's state; empty without memory."""
        state = self.model_v2.get_initial_state()
        return {f"state_{i}": _as_array(each) for i, each in enumerate(state)}

    def _run(self, batch: Batch) -> tuple[torch.Tensor, list[Tree]]:
        """Return logits [*batch, n] and next states; `value_function` uses the same pass."""
        flat = packed(self.observation_space, batch[Columns.OBS])
        state = batch.get(Columns.STATE_IN) if self.is_stateful() else None
        front = flat.shape[: 1 if state is None else 2]
        rows = flat.reshape(front.numel(), *flat.shape[len(front) :])
        given: Options = {OBS: rows, OBS_FLAT: rows.reshape(len(rows), -1).float()}
        given["is_training"] = self.training
        if state is None:
            logits, next_states = self.model_v2(given, [], None)
        else:
            mask = batch.get(Columns.LOSS_MASK)
            lengths = (
                torch.full((front[0],), front[1], device=flat.device)
                if mask is None
                else mask.sum(-1)
            )
            names = sorted(state, key=lambda name: int(name.rpartition("_")[2]))
            logits, next_states = self.model_v2(given, [state[n] for n in names], lengths)
        return logits.reshape(*front, logits.shape[-1]), next_states

    def _forward(self, batch: Batch, **kwargs: object) -> Batch:
        logits, states = self._run(batch)
        output: Batch = {Columns.ACTION_DIST_INPUTS: logits}
        if self.is_stateful():
            output[Columns.STATE_OUT] = {f"state_{i}": each for i, each in enumerate(states)}
        return output

    def _forward_train(self, batch: Batch, **kwargs: object) -> Batch:
        output = self._forward(batch, **kwargs)
        values = self.model_v2.value_function()
        output[Columns.EMBEDDINGS] = values.reshape(output[Columns.ACTION_DIST_INPUTS].shape[:-1])
        return output

    def compute_values(self, batch: Batch, embeddings: Tree = None) -> Tree:
        """Return the values of the observations, [B] or [S, L]."""
        if embeddings is not None:
            return embeddings
        logits, _ = self._run(batch)
        return self.model_v2.value_function().reshape(logits.shape[:-1])

    def adjust_loss(self, loss: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Apply the network's `custom_loss` to the loss."""
        made = self.model_v2.custom_loss([loss], dict(batch))
        changed: torch.Tensor = made[0] if isinstance(made, (list, tuple)) else made
        return changed

    def loss_metrics(self) -> Results:
        """Return the network's metrics."""
        return dict(self.model_v2.metrics())


class ModelV2Encoder(nn.Module):
    """Adapts a `TorchModelV2` without memory to an encoder."""

    def __init__(self, model: Any, observation_space: Space) -> None:
        super().__init__()
        self.model_v2 = model
        self._space = observation_space

    def forward(self, batch: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Return the features [B, n] under "encoder_out"."""
        flat = packed(self._space, batch[Columns.OBS])
        features, _ = self.model_v2({OBS: flat, "is_training": self.training}, [], None)
        return {ENCODER_OUT: features}


class ModelV2Catalog(Catalog):
    """Builds encoders from networks of older releases, for DQN, SAC and similar algorithms."""

    def _determine_components_hook(self) -> None:
        config = self._model_config_dict
        hidden = (config.get("older_model") or config).get("fcnet_hiddens") or [FEATURES]
        model = self._model(int(hidden[-1]))
        if model.get_initial_state():
            raise ValueError(
                f"{type(model).__name__} has a state, which this algorithm does not support. Use "
                "PPO, APPO or IMPALA, or a network without memory."
            )
        self.latent_dims = (int(model.num_outputs or hidden[-1]),)
        self._features = int(hidden[-1])

    def _model(self, features: int) -> Network:
        config = self._model_config_dict
        return built_model(
            config["custom_model"],
            self.observation_space,
            self.action_space,
            features,
            config,
            "encoder",
        )

    def build_encoder(self, framework: str = "torch") -> Network:
        """Return a new encoder."""
        return ModelV2Encoder(self._model(self._features), self.observation_space)


def _as_array(value: object) -> np.ndarray:
    array: np.ndarray = (
        value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    )
    return array
