"""GTrXL: a gated transformer with a memory of earlier steps, used as a stateful encoder.

Parisotto et al. 2019, "Stabilizing Transformers for Reinforcement Learning"
(https://arxiv.org/abs/1910.06764); relative positions of Dai et al. 2019, "Transformer-XL"
(https://arxiv.org/abs/1901.02860). Each unit is

    y = gate(x, relu(attention(norm([memory, x]))))       gate: a GRU's, biased to the identity
    z = gate(y, relu(mlp(norm(y))))

A step attends to itself and the last `memory` steps of its episode. The score of step j at step t
is (q_t + u) k_j + (q_t + v) r_{t-j}, where r encodes the distance.

State: the last `memory` inputs of each unit, [S, units, memory, dim], oldest first, and the number
of them that belong to this episode, [S]. Gradients do not flow into the memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import relu, scaled_dot_product_attention

from syncline.rl.columns.names import Columns
from syncline.rl.modules.torch.memory import tokenize
from syncline.rl.modules.torch.models import (
    ENCODER_OUT,
    Encoder,
    ModelConfig,
    TorchModel,
    in_dtype_of,
)
from syncline.rl.value_types import Batch, Tree

MEMORY = "memory"
"""Part of the state: the last inputs of each unit."""
COUNT = "count"
"""Part of the state: the number of valid steps in the memory."""


@dataclass
class AttentionEncoderConfig(ModelConfig):
    """Settings of a GTrXL encoder."""

    num_units: int = 1
    """Number of stacked transformer units."""
    dim: int = 64
    """Size of the input and output of each unit."""
    num_heads: int = 1
    """Number of heads per unit."""
    head_dim: int = 32
    """Size of the queries, keys and values of each head."""
    memory: int = 50
    """Number of previous steps to store, and to attend to when acting."""
    memory_training: int = 50
    """Number of previous steps that training attends to."""
    mlp_dim: int = 32
    """Size of the hidden layer in the MLP of each unit."""
    init_gate_bias: float = 2.0
    """Initial bias of the gates."""
    tokenizer_config: Any = None
    """Settings of the encoder of single observations; None to use vectors directly."""

    @property
    def output_dims(self) -> tuple[int, ...]:
        """Output size of the last unit."""
        return (self.dim,)

    @property
    def is_stateful(self) -> bool:
        """Always True."""
        return True

    def build(self, framework: str = "torch") -> TorchAttentionEncoder:
        """Return the encoder."""
        return TorchAttentionEncoder(self)


class TorchAttentionEncoder(TorchModel, Encoder):
    """A GTrXL after a tokenizer, for sequences [S, L, ...]."""

    def __init__(self, config: AttentionEncoderConfig) -> None:
        TorchModel.__init__(self, config)
        self.tokenizer = None
        dims = config.input_dims
        if config.tokenizer_config is not None:
            self.tokenizer = config.tokenizer_config.build(framework="torch")
            dims = config.tokenizer_config.output_dims
        self.embed = nn.Linear(int(dims[0]), config.dim)
        self.units = nn.ModuleList(GatedUnit(config) for _ in range(config.num_units))

    def get_initial_state(self) -> dict[str, np.ndarray]:
        """Return an empty memory."""
        config = self.config
        shape = (config.num_units, config.memory, config.dim)
        return {MEMORY: np.zeros(shape, np.float32), COUNT: np.zeros((), np.int64)}

    def _forward(self, inputs: Tree, **kwargs: object) -> Batch:
        memory, count = (inputs[Columns.STATE_IN][name] for name in (MEMORY, COUNT))
        x = self.embed(in_dtype_of(tokenize(self.tokenizer, inputs), self.embed))
        length = x.shape[1]
        window = self.config.memory_training if self.training else self.config.memory
        mask = band_mask(length, self.config.memory, window, count)
        memories = []
        for unit, past in zip(self.units, memory.unbind(1), strict=True):
            joined = torch.cat([past, x], dim=1)
            memories.append(joined[:, length:].detach())
            x = unit(x, joined, mask)
        state = {
            MEMORY: torch.stack(memories, dim=1),
            COUNT: (count + length).clamp(max=self.config.memory),
        }
        return {ENCODER_OUT: x, Columns.STATE_OUT: state}


def band_mask(length: int, memory: int, window: int, count: torch.Tensor) -> torch.Tensor:
    """Return the mask of the keys that each step attends to, [S, L, memory + L], bool.

    Step t, at position memory + t, attends to itself and the `window` positions before it, as far
    as they are among the last `count` [S] valid positions of the memory.
    """
    keys = torch.arange(memory + length, device=count.device)
    distance = memory + torch.arange(length, device=count.device)[:, None] - keys
    in_band = (distance >= 0) & (distance <= window)
    valid = keys >= memory - count[:, None]
    return in_band & valid[:, None]


class GatedUnit(nn.Module):
    """One transformer unit."""

    def __init__(self, config: AttentionEncoderConfig) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(config.dim)
        self.attention = RelativeAttention(
            config.dim, config.num_heads, config.head_dim, config.memory
        )
        self.gate_attention = GRUGate(config.dim, config.init_gate_bias)
        self.norm_mlp = nn.LayerNorm(config.dim)
        self.mlp = nn.Sequential(
            nn.Linear(config.dim, config.mlp_dim), nn.ReLU(), nn.Linear(config.mlp_dim, config.dim)
        )
        self.gate_mlp = GRUGate(config.dim, config.init_gate_bias)

    def forward(self, x: torch.Tensor, joined: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the output [S, L, dim] for the input `x`, the end of `joined` [S, M + L, dim]."""
        attended = self.attention(self.norm_attention(joined), x.shape[1], mask)
        y = self.gate_attention(x, relu(attended))
        z: torch.Tensor = self.gate_mlp(y, relu(self.mlp(self.norm_mlp(y))))
        return z


class RelativeAttention(nn.Module):
    """Attention of the last L of M + L positions to all positions in the mask.

    Scores depend on contents and on distances from 0 to `farthest`.
    """

    distances: torch.Tensor

    def __init__(self, dim: int, num_heads: int, head_dim: int, farthest: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        inner = num_heads * head_dim
        self.query = nn.Linear(dim, inner, bias=False)
        self.key_value = nn.Linear(dim, 2 * inner, bias=False)
        self.position = nn.Linear(dim, inner, bias=False)
        self.out = nn.Linear(inner, dim, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, 1, head_dim))
        self.position_bias = nn.Parameter(torch.zeros(num_heads, 1, head_dim))
        self.register_buffer("distances", sinusoids(farthest + 1, dim), persistent=False)

    def forward(self, joined: torch.Tensor, length: int, mask: torch.Tensor) -> torch.Tensor:
        """Return [S, L, dim] for inputs [S, M + L, dim] and a mask [S, L, M + L]."""
        query = self._heads(self.query(joined[:, -length:]))
        key, value = map(self._heads, self.key_value(joined).chunk(2, dim=-1))
        positions = self._heads(self.position(self.distances).unsqueeze(0))
        by_distance = (query + self.position_bias) @ positions.transpose(-1, -2)
        scores = at_distances(by_distance, joined.shape[1]) / math.sqrt(self.head_dim)
        scores = scores.masked_fill(~mask.unsqueeze(1), -torch.inf)
        attended = scaled_dot_product_attention(
            query + self.content_bias, key, value, attn_mask=scores
        )
        out: torch.Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """Return [S, heads, L, head_dim] for [S, L, heads * head_dim]."""
        return x.view(*x.shape[:-1], self.num_heads, self.head_dim).transpose(1, 2)


def at_distances(by_distance: torch.Tensor, num_keys: int) -> torch.Tensor:
    """Convert scores by distance [..., L, D] to scores by key [..., L, num_keys].

    Query t is at position num_keys - L + t. Keys farther than D - 1, or after the query, get
    invalid scores and must be masked.
    """
    length, reach = by_distance.shape[-2:]
    device = by_distance.device
    query = torch.arange(num_keys - length, num_keys, device=device)[:, None]
    distance = (query - torch.arange(num_keys, device=device)).clamp(0, reach - 1)
    return by_distance.gather(-1, distance.expand(*by_distance.shape[:-1], num_keys))


def sinusoids(count: int, dim: int) -> torch.Tensor:
    """Return the encodings of the distances 0 to count - 1, [count, dim]."""
    half = (dim + 1) // 2
    frequencies = torch.exp(torch.arange(half) * (-math.log(10_000.0) / max(1, half)))
    angles = torch.arange(count)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)[:, :dim]


class GRUGate(nn.Module):
    """The gate of a GRU between x and y: g = (1 - z) x + z h.

    z = sigmoid(W y + U x - bias), so a positive bias starts close to g = x.
    """

    def __init__(self, dim: int, bias: float) -> None:
        super().__init__()
        self.from_y = nn.Linear(dim, 3 * dim, bias=False)
        self.from_x = nn.Linear(dim, 2 * dim, bias=False)
        self.from_reset = nn.Linear(dim, dim, bias=False)
        self.bias = nn.Parameter(torch.full((dim,), float(bias)))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the gated combination of `x` and `y`."""
        reset_y, update_y, candidate_y = self.from_y(y).chunk(3, dim=-1)
        reset_x, update_x = self.from_x(x).chunk(2, dim=-1)
        reset = torch.sigmoid(reset_y + reset_x)
        update = torch.sigmoid(update_y + update_x - self.bias)
        candidate = torch.tanh(candidate_y + self.from_reset(reset * x))
        gated: torch.Tensor = torch.lerp(x, candidate, update)
        return gated
