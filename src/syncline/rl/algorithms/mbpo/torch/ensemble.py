"""`DynamicsEnsemble`: probabilistic dynamics models in one batched module
(Chua et al. 2018, https://arxiv.org/abs/1805.12114).

Every member predicts a normal distribution over the change of the observation and the reward, and
the probability that the next state is terminal. Covered: networks and loss per member. Not covered:
normalization, training and draws (`dynamics`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, silu, softplus

LOG_VARIANCE_RANGE = (-10.0, 0.5)
"""Initial bounds of the log variances, which are learned."""
BOUNDS_SCALE = 0.01
"""Weight of the loss term that tightens the bounds."""
FIRST_LOGIT = -5.0
"""Initial logit of terminal states: they are rare."""


class EnsembleLinear(nn.Module):
    """A linear layer for each member: [E, B, I] to [E, B, O].

    Args:
        members: E.
        inputs: I.
        outputs: O.
        random: Source of the weights.
    """

    def __init__(
        self, members: int, inputs: int, outputs: int, random: np.random.Generator
    ) -> None:
        super().__init__()
        drawn = np.clip(random.standard_normal((members, inputs, outputs)), -2.0, 2.0)
        std = 1.0 / (2.0 * np.sqrt(inputs))
        self.weight = nn.Parameter(torch.from_numpy(drawn * std).float())
        self.bias = nn.Parameter(torch.zeros(members, 1, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs [E, B, O]."""
        return torch.baddbmm(self.bias, x, self.weight)


class DynamicsEnsemble(nn.Module):
    """E fully connected networks with SiLU.

    Args:
        members: E.
        inputs: Length of an input: observation and action.
        outputs: Length of an output: change of the observation, and reward.
        hiddens: Widths of the hidden layers.
        random: Source of the weights.
    """

    def __init__(
        self,
        *,
        members: int,
        inputs: int,
        outputs: int,
        hiddens: Sequence[int],
        random: np.random.Generator,
    ) -> None:
        super().__init__()
        self.num_members = members
        self.num_outputs = outputs
        widths = [inputs, *hiddens]
        self.hidden = nn.ModuleList(
            EnsembleLinear(members, before, after, random)
            for before, after in zip(widths[:-1], widths[1:], strict=True)
        )
        self.head = EnsembleLinear(members, widths[-1], 2 * outputs + 1, random)
        with torch.no_grad():
            self.head.bias[..., -1] = FIRST_LOGIT
        low, high = LOG_VARIANCE_RANGE
        self.least_log_variance = nn.Parameter(torch.full((members, 1, outputs), low))
        self.largest_log_variance = nn.Parameter(torch.full((members, 1, outputs), high))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return means [E, B, O], log variances [E, B, O] and logits of terminal states [E, B].

        Args:
            x: Inputs of each member, [E, B, I].
        """
        for layer in self.hidden:
            x = silu(layer(x))
        mean, raw, logit = self.head(x).split([self.num_outputs, self.num_outputs, 1], -1)
        log_variance = self.largest_log_variance - softplus(self.largest_log_variance - raw)
        log_variance = self.least_log_variance + softplus(log_variance - self.least_log_variance)
        return mean, log_variance, logit.squeeze(-1)

    def loss(
        self, x: torch.Tensor, targets: torch.Tensor, terminated: torch.Tensor
    ) -> torch.Tensor:
        """Return the negative log-likelihood of each member, [E], up to a constant.

        Args:
            x: Inputs [E, B, I].
            targets: Outputs [E, B, O].
            terminated: 1.0 for terminal next states, [E, B].
        """
        mean, log_variance, logit = self(x)
        errors = (mean - targets).square() * torch.exp(-log_variance) + log_variance
        ends = binary_cross_entropy_with_logits(logit, terminated, reduction="none")
        width = (self.largest_log_variance - self.least_log_variance).sum((-2, -1))
        total: torch.Tensor = errors.mean((-2, -1)) + ends.mean(-1) + BOUNDS_SCALE * width
        return total

    @torch.no_grad()
    def errors(
        self, x: torch.Tensor, targets: torch.Tensor, terminated: torch.Tensor
    ) -> torch.Tensor:
        """Return the validation error of each member, [E]: squared errors of the means, and the
        cross-entropy of terminal states.

        Args:
            x: Inputs [B, I], the same for all members.
            targets: Outputs [B, O].
            terminated: [B].
        """
        mean, _, logit = self(x.expand(self.num_members, -1, -1))
        ends = binary_cross_entropy_with_logits(
            logit, terminated.expand_as(logit), reduction="none"
        )
        total: torch.Tensor = (mean - targets).square().mean((-2, -1)) + ends.mean(-1)
        return total
