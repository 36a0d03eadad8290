"""`RSSM`: the recurrent state-space model of DreamerV3 (equation 3 of the paper).

    h_t = GRU(h_{t-1}, z_{t-1}, a_{t-1})      sequence model
    z_t ~ q(z_t | h_t, x_t)                   posterior: with the observation
    z_t ~ p(z_t | h_t)                        prior: without it

z_t are K variables of C values each, flat one-hot vectors [*batch, K C]. Covered: single steps,
sequences of observations, the state at the beginning of episodes. Not covered: encoder and heads
(`networks`), imagination (`dreamerv3_torch_rl_module`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import one_hot, silu

from syncline.rl.algorithms.dreamerv3.torch.formulas import mixed_probabilities, straight_through
from syncline.rl.algorithms.dreamerv3.torch.networks import MLP, ModelSize, initialize


@dataclass(frozen=True, kw_only=True)
class Observed:
    """States of a sequence, returned by `observe`."""

    h: torch.Tensor
    """Deterministic states [T, B, H]."""
    z: torch.Tensor
    """Stochastic states [T, B, K C], drawn from the posterior."""
    posterior: torch.Tensor
    """Posterior probabilities [T, B, K, C]."""
    prior: torch.Tensor
    """Prior probabilities [T, B, K, C]."""

    @property
    def features(self) -> torch.Tensor:
        """h and z as one vector, [T, B, H + K C]."""
        return torch.cat([self.h, self.z], -1)


class RSSM(nn.Module):
    """A GRU whose inputs and outputs are discrete latents.

    Args:
        size: Widths.
        embedding_size: E, length of embedded observations.
        action_size: A, length of actions as vectors.
    """

    def __init__(self, size: ModelSize, embedding_size: int, action_size: int) -> None:
        super().__init__()
        self.gru_units = size.gru_units
        self.num_categoricals, self.num_classes = size.num_categoricals, size.num_classes
        self.z_size = size.num_categoricals * size.num_classes
        units = size.dense_units
        self.from_z = nn.Linear(self.z_size, units, bias=False)
        self.from_action = nn.Linear(action_size, units, bias=False)
        self.input_norm = nn.LayerNorm(units, eps=1e-3)
        self.gru = nn.Linear(units + self.gru_units, 3 * self.gru_units, bias=False)
        self.gru_norm = nn.LayerNorm(3 * self.gru_units, eps=1e-3)
        self.prior = MLP(self.gru_units, units, 1, self.z_size)
        self.from_h = nn.Linear(self.gru_units, units, bias=False)
        self.from_embedding = nn.Linear(embedding_size, units, bias=False)
        self.posterior_norm = nn.LayerNorm(units, eps=1e-3)
        self.posterior = nn.Linear(units, self.z_size)
        self.initial_h = nn.Parameter(torch.zeros(self.gru_units))
        for layer in (
            self.from_z,
            self.from_action,
            self.gru,
            self.from_h,
            self.from_embedding,
            self.posterior,
        ):
            initialize(layer)

    # -- single steps

    def initial(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return h [H] and z [K C] before the first observation of an episode.

        h is learned; z is the mode of its prior.
        """
        h = torch.tanh(self.initial_h)
        best = self.prior_of(h).argmax(-1)
        return h, one_hot(best, self.num_classes).flatten().to(h.dtype)

    def next_h(self, h: torch.Tensor, z: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return h_t [*batch, H] of h, z and a, all of step t - 1."""
        return self._next_h(h, z, self.from_action(action))

    def _next_h(self, h: torch.Tensor, z: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        x = silu(self.input_norm(self.from_z(z) + action))
        parts = self.gru_norm(self.gru(torch.cat([x, h], -1))).to(h.dtype)
        reset, candidate, update = parts.chunk(3, -1)
        candidate = torch.tanh(torch.sigmoid(reset) * candidate)
        return torch.lerp(h, candidate, torch.sigmoid(update - 1.0))

    def prior_of(self, h: torch.Tensor) -> torch.Tensor:
        """Return the probabilities [*batch, K, C] of z given h."""
        return self._probabilities(self.prior(h))

    def posterior_of(self, h: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        """Return the probabilities [*batch, K, C] of z given h and an embedding."""
        return self._posterior_of(h, self.from_embedding(embedding))

    def _posterior_of(self, h: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        x = silu(self.posterior_norm(self.from_h(h) + embedding))
        return self._probabilities(self.posterior(x))

    def _probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        shape = (*logits.shape[:-1], self.num_categoricals, self.num_classes)
        return mixed_probabilities(logits.reshape(shape))

    def sample(self, probabilities: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return z [*batch, K C] with straight-through gradients; noise is uniform, [*batch, K]."""
        return straight_through(probabilities, noise).flatten(-2)

    # -- sequences

    def observe(
        self,
        embeddings: torch.Tensor,
        actions: torch.Tensor,
        is_first: torch.Tensor,
        noise: torch.Tensor,
        start: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> Observed:
        """Return the states of a sequence of observations.

        Computations that do not depend on the previous step are batched over all steps: the
        projections of actions and embeddings, and the priors.

        Args:
            embeddings: Embedded observations [T, B, E].
            actions: Action before each observation [T, B, A]; ignored where `is_first`.
            is_first: [T, B], True where an episode begins and the state is reset.
            noise: Uniform numbers [T, B, K].
            start: h and z before the first step, [B, …]; the initial ones by default.
        """
        size = embeddings.shape[1]
        initial_h, initial_z = self.initial()
        first = is_first.unsqueeze(-1)  # [T, B, 1]
        begins = is_first.any(1).tolist()
        action_inputs = self.from_action(torch.where(first, 0.0, actions)).unbind()
        embedding_inputs = self.from_embedding(embeddings).unbind()
        if start is None:
            h, z = initial_h.expand(size, -1), initial_z.expand(size, -1)
        else:
            h, z = start
        states, latents, posteriors = [], [], []
        for t in range(len(embeddings)):
            if begins[t]:
                h = torch.where(first[t], initial_h, h)
                z = torch.where(first[t], initial_z, z)
            h = self._next_h(h, z, action_inputs[t])
            posterior = self._posterior_of(h, embedding_inputs[t])
            z = self.sample(posterior, noise[t])
            states.append(h)
            latents.append(z)
            posteriors.append(posterior)
        all_h = torch.stack(states)
        return Observed(
            h=all_h,
            z=torch.stack(latents),
            posterior=torch.stack(posteriors),
            prior=self.prior_of(all_h),
        )
