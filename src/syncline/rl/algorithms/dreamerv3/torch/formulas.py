"""The formulas of DreamerV3 (Hafner et al. 2023, https://arxiv.org/abs/2301.04104).

Covered: symlog, two-hot regression, categorical latents with a uniform share, the balanced KL
divergence, lambda returns. Not covered: networks.
"""

from __future__ import annotations

import torch

UNIMIX = 0.01
"""Weight of the uniform distribution in every categorical distribution."""
FREE_NATS = 1.0
"""KL divergence below which the gradient is zero (free nats)."""


def symlog(x: torch.Tensor) -> torch.Tensor:
    """Return sign(x) ln(|x| + 1)."""
    return torch.sign(x) * torch.log1p(torch.abs(x))


def symexp(x: torch.Tensor) -> torch.Tensor:
    """Return sign(x) (exp(|x|) - 1), the inverse of `symlog`."""
    return torch.sign(x) * torch.expm1(torch.abs(x))


class TwoHot:
    """Regression by classification: a number is encoded as a distribution over 2 K + 1 bins.

    The bins are symexp(-20 … 20), evenly spaced under symlog. The two bins around a target share
    its probability in proportion to their distances (two-hot encoding). The order of the bins is
    0, b_1 … b_K, -b_1 … -b_K.

    Args:
        device: Device of the bins.
        num_bins: 2 K + 1.
    """

    def __init__(self, device: torch.device | None = None, num_bins: int = 255) -> None:
        self.num_bins = num_bins
        self._half = num_bins // 2
        half = symexp(torch.linspace(0.0, 20.0, self._half + 1, device=device))
        self._positive = half[1:]
        self.bins = torch.cat([half, -self._positive])
        self._ascending = self.bins.sort().values

    def mean(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the expected values, [*batch], of logits [*batch, bins].

        Opposite bins are summed in pairs, so that equal probabilities give exactly 0 despite the
        large numbers at both ends.
        """
        probabilities = torch.softmax(logits, -1)
        middle = self._half + 1
        return (probabilities[..., 1:middle] - probabilities[..., middle:]) @ self._positive

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Return the distributions [*batch, bins] of values [*batch]."""
        indices, shares = self._place(values)
        made = torch.zeros(*values.shape, self.num_bins, device=values.device)
        return made.scatter_(-1, indices, shares)

    def loss(self, logits: torch.Tensor, *targets: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropies [targets, *batch] of logits [*batch, bins] to each target."""
        places = [self._place(each) for each in targets]
        indices = torch.cat([index for index, _ in places], -1)
        shares = torch.stack([share for _, share in places])
        pairs = logits.gather(-1, indices).reshape(*logits.shape[:-1], len(targets), 2)
        chosen = (pairs.movedim(-2, 0) * shares).sum(-1)
        return torch.logsumexp(logits, -1) - chosen

    def _place(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the bins around values and their probabilities, both [*batch, 2]."""
        upper = torch.searchsorted(self._ascending, values.contiguous(), right=True)
        upper = upper.clamp(1, self.num_bins - 1)
        low, high = self._ascending[upper - 1], self._ascending[upper]
        share = ((values - low) / (high - low)).clamp(0.0, 1.0)
        order = torch.stack([upper - 1, upper], -1) - self._half
        indices = torch.where(order >= 0, order, self._half - order)
        return indices, torch.stack([1.0 - share, share], -1)


def mixed_probabilities(logits: torch.Tensor) -> torch.Tensor:
    """Return 0.99 softmax + 0.01 / C, of the shape [*batch, C]."""
    return torch.softmax(logits, -1) * (1.0 - UNIMIX) + UNIMIX / logits.shape[-1]


def draw(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Return one-hot samples [*batch, C] by inversion of uniform numbers [*batch]."""
    probabilities = probabilities.detach()
    below = probabilities.cumsum(-1) < uniform.unsqueeze(-1)
    index = below.sum(-1, keepdim=True).clamp_(max=probabilities.shape[-1] - 1)
    return torch.zeros_like(probabilities).scatter_(-1, index, 1.0)


def straight_through(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Return one-hot samples [*batch, C] with straight-through gradients."""
    drawn = draw(probabilities, uniform)
    if not probabilities.requires_grad:
        return drawn
    return drawn + (probabilities - probabilities.detach())


def kl_divergence(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Return KL(p || q), [*batch], summed over the variables of [*batch, K, C]."""
    return (p * (p.log() - q.log())).sum((-2, -1))


def balanced_kl(posterior: torch.Tensor, prior: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return dynamics and representation loss [*batch] of probabilities [*batch, K, C].

    Both have the value max(1, KL). The first trains only the prior, the second only the posterior
    (equation 5).
    """
    dynamics = kl_divergence(posterior.detach(), prior).clamp(min=FREE_NATS)
    representation = kl_divergence(posterior, prior.detach()).clamp(min=FREE_NATS)
    return dynamics, representation


def lambda_returns(
    rewards: torch.Tensor, values: torch.Tensor, discounts: torch.Tensor, lambda_: float
) -> torch.Tensor:
    """Return R_t = r_{t+1} + d_{t+1} ((1 - lambda) v_{t+1} + lambda R_{t+1}), [H, N].

    Args:
        rewards: r_0 … r_H, [H + 1, N]; r_t is the reward of arriving in state t.
        values: v_0 … v_H, [H + 1, N]; R_H is v_H.
        discounts: d_0 … d_H, [H + 1, N], 0 at terminal states.
        lambda_: 0 for one-step, 1 for Monte Carlo returns (equation 7).
    """
    fixed = rewards[1:] + discounts[1:] * (1.0 - lambda_) * values[1:]
    found = [values[-1]]
    for t in range(len(fixed) - 1, -1, -1):
        found.append(torch.addcmul(fixed[t], discounts[t + 1], found[-1], value=lambda_))
    return torch.stack(found[:0:-1])
