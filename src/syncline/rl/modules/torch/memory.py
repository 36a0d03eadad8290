"""Encoders with an LSTM or a GRU after a tokenizer, and their settings.

Inputs are sequences [S, L, ...] with the state before the first step, `state_in`, whose parts have
the shape [S, layers, hidden]. Padding at the end of a sequence only affects `state_out`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import map_tree
from syncline.rl.modules.default_model_config import Initializer
from syncline.rl.modules.torch.models import ENCODER_OUT, Encoder, ModelConfig, TorchModel
from syncline.rl.modules.torch.primitives import initialize
from syncline.rl.value_types import Batch, Network, Options, Tree


@dataclass
class RecurrentEncoderConfig(ModelConfig):
    """Settings of an encoder with an LSTM or a GRU."""

    recurrent_layer_type: str = "lstm"
    """"lstm" or "gru"."""
    hidden_dim: int = 256
    """Size of the state and of the output."""
    num_layers: int = 1
    """Number of stacked layers."""
    batch_major: bool = True
    """Inputs are [S, L, ...]; otherwise [L, S, ...]."""
    hidden_weights_initializer: Initializer = None
    """Initializer of the weights."""
    hidden_weights_initializer_config: Options | None = None
    """Arguments of this initializer."""
    use_bias: bool = True
    """Use biases."""
    hidden_bias_initializer: Initializer = None
    """Initializer of the biases."""
    hidden_bias_initializer_config: Options | None = None
    """Arguments of this initializer."""
    tokenizer_config: Any = None
    """Settings of the encoder of single observations; None to use vectors directly."""

    @property
    def output_dims(self) -> tuple[int, ...]:
        """Size of the state."""
        return (self.hidden_dim,)

    @property
    def is_stateful(self) -> bool:
        """Always True."""
        return True

    def build(self, framework: str = "torch") -> TorchRecurrentEncoder:
        """Return the encoder."""
        if self.recurrent_layer_type == "lstm":
            return TorchLSTMEncoder(self)
        if self.recurrent_layer_type == "gru":
            return TorchGRUEncoder(self)
        raise ValueError(
            f"`recurrent_layer_type={self.recurrent_layer_type!r}` is unknown: use 'lstm' or 'gru'."
        )


class TorchRecurrentEncoder(TorchModel, Encoder):
    """Common base of LSTM and GRU encoders."""

    state_parts: tuple[str, ...]
    """Names of the parts of the state."""

    def __init__(self, config: RecurrentEncoderConfig) -> None:
        TorchModel.__init__(self, config)
        self.tokenizer = None
        if config.tokenizer_config is not None:
            self.tokenizer = config.tokenizer_config.build(framework="torch")

    def _make_layers(self, cls: Any) -> Network:
        config = self.config
        source = config if config.tokenizer_config is None else config.tokenizer_config
        dims = source.input_dims if config.tokenizer_config is None else source.output_dims
        if dims is None or len(dims) != 1:
            raise ValueError(f"A recurrent layer needs vectors, not inputs of shape {dims}.")
        layers = cls(
            int(dims[0]),
            config.hidden_dim,
            config.num_layers,
            bias=config.use_bias,
            batch_first=config.batch_major,
        )
        for name, tensor in layers.named_parameters():
            kind = "bias" if name.startswith("bias") else "weights"
            initialize(
                tensor,
                getattr(config, f"hidden_{kind}_initializer"),
                getattr(config, f"hidden_{kind}_initializer_config"),
            )
        return layers

    def get_initial_state(self) -> dict[str, np.ndarray]:
        """Return zeros [layers, hidden] by part of the state."""
        shape = (self.config.num_layers, self.config.hidden_dim)
        return {name: np.zeros(shape, np.float32) for name in self.state_parts}

    def _is_one_step(self, tokens: torch.Tensor) -> bool:
        """Return True for sequences of one step, as in acting.

        Cells process them 2 to 8 times faster than layers, which prepare the weights in every call.
        """
        return bool(self.config.batch_major and tokens.shape[1] == 1)

    def tokens(self, inputs: Tree) -> torch.Tensor:
        """Return the vectors of the observations, [S, L, D]."""
        return tokenize(self.tokenizer, inputs)


class TorchLSTMEncoder(TorchRecurrentEncoder):
    """An LSTM after a tokenizer; state {"h", "c"}."""

    state_parts = ("h", "c")

    def __init__(self, config: RecurrentEncoderConfig) -> None:
        super().__init__(config)
        self.lstm = self._make_layers(nn.LSTM)

    def _forward(self, inputs: Tree, **kwargs: object) -> Batch:
        h, c = (_layers_first(inputs[Columns.STATE_IN][name]) for name in self.state_parts)
        tokens = self.tokens(inputs)
        if self._is_one_step(tokens):
            out, h, c = self._step(tokens[:, 0], h, c)
        else:
            out, (h, c) = self.lstm(tokens, (h, c))
        state = {"h": h.transpose(0, 1), "c": c.transpose(0, 1)}
        return {ENCODER_OUT: out, Columns.STATE_OUT: state}

    def _step(
        self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        states = []
        for layer, weights in enumerate(self.lstm.all_weights):
            states.append(torch.lstm_cell(x, (h[layer], c[layer]), *weights))
            x = states[-1][0]
        return (
            x.unsqueeze(1),
            torch.stack([each[0] for each in states]),
            torch.stack([each[1] for each in states]),
        )


class TorchGRUEncoder(TorchRecurrentEncoder):
    """A GRU after a tokenizer; state {"h"}."""

    state_parts = ("h",)

    def __init__(self, config: RecurrentEncoderConfig) -> None:
        super().__init__(config)
        self.gru = self._make_layers(nn.GRU)

    def _forward(self, inputs: Tree, **kwargs: object) -> Batch:
        tokens, h = self.tokens(inputs), _layers_first(inputs[Columns.STATE_IN]["h"])
        if self._is_one_step(tokens):
            out, h = self._step(tokens[:, 0], h)
        else:
            out, h = self.gru(tokens, h)
        return {ENCODER_OUT: out, Columns.STATE_OUT: {"h": h.transpose(0, 1)}}

    def _step(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states = []
        for layer, weights in enumerate(self.gru.all_weights):
            x = torch.gru_cell(x, h[layer], *weights)
            states.append(x)
        return x.unsqueeze(1), torch.stack(states)


def _layers_first(state: torch.Tensor) -> torch.Tensor:
    return state.transpose(0, 1).contiguous()


def tokenize(tokenizer: Any, inputs: Tree) -> torch.Tensor:
    """Return the vectors [S, L, D] of observations [S, L, ...].

    Tokenizers get [S * L, ...], because custom ones may support only one batch dimension.
    """
    obs = inputs[Columns.OBS]
    if tokenizer is None:
        vectors: torch.Tensor = obs
        return vectors if vectors.is_floating_point() else vectors.float()
    shape: tuple[int, ...] = ()

    def folded(leaf: torch.Tensor) -> torch.Tensor:
        nonlocal shape
        shape = leaf.shape[:2]
        return leaf.reshape(-1, *leaf.shape[2:])

    tokens: torch.Tensor = tokenizer({Columns.OBS: map_tree(folded, obs)})[ENCODER_OUT]
    return tokens.reshape(*shape, *tokens.shape[1:])
