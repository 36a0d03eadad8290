"""Mixers: combine the values of agents to the value of the team."""

from __future__ import annotations

import torch
from torch import nn


class VDNMixer(nn.Module):
    """The sum of the agents' values (Sunehag et al. 2018, https://arxiv.org/abs/1706.05296)."""

    def forward(self, values: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Return team values [...] for agents' values [..., n]."""
        return values.sum(-1)


class QMixer(nn.Module):
    """A monotonic network whose weights depend on the state (Rashid et al. 2018,
    https://arxiv.org/abs/1803.11485).

    Q_tot = |w2(s)| elu(|w1(s)| q + b1(s)) + b2(s), so dQ_tot / dq_i >= 0 for every agent.

    Args:
        num_agents: n.
        state_size: D.
        embed_size: Width of the hidden layer.
    """

    def __init__(self, num_agents: int, state_size: int, embed_size: int) -> None:
        super().__init__()
        self._num_agents = num_agents
        self._embed_size = embed_size
        self.weights_1 = nn.Linear(state_size, num_agents * embed_size)
        self.bias_1 = nn.Linear(state_size, embed_size)
        self.weights_2 = nn.Linear(state_size, embed_size)
        self.bias_2 = nn.Sequential(
            nn.Linear(state_size, embed_size), nn.ReLU(), nn.Linear(embed_size, 1)
        )

    def forward(self, values: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Return team values [...] for agents' values [..., n] and states [..., D]."""
        first = self.weights_1(states).abs()
        first = first.view(*states.shape[:-1], self._num_agents, self._embed_size)
        mixed = (values.unsqueeze(-2) @ first).squeeze(-2) + self.bias_1(states)
        hidden = nn.functional.elu(mixed)
        second = self.weights_2(states).abs()
        total: torch.Tensor = (hidden * second).sum(-1) + self.bias_2(states).squeeze(-1)
        return total
