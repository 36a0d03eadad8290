"""The critics of TQC and their loss; policy and temperature are trained as in SAC."""

from __future__ import annotations

import gymnasium as gym
import torch

from syncline.rl.algorithms.sac.torch.critics import Critics
from syncline.rl.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from syncline.rl.algorithms.sac.torch.sac_torch_module import DefaultSACTorchRLModule
from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.target_networks import discounts, weighted_mean
from syncline.rl.learners.torch.train_batch import Batch
from syncline.rl.value_types import ModuleType


class DefaultTQCTorchRLModule(DefaultSACTorchRLModule):
    """A policy and C critics with K quantiles each."""

    def make_critics(self) -> Critics:
        """Return the critics."""
        if not isinstance(self.action_space, gym.spaces.Box):
            raise ValueError(
                f"TQC needs a Box action space, not {self.action_space}. Use DQN with "
                "`num_atoms=51` for Discrete actions."
            )
        count = int(self.model_config.get("n_critics", 2))
        quantiles = int(self.model_config.get("n_quantiles", 25))
        spaces = self.observation_space, self.action_space
        return Critics(count, self.catalog, self.model_config, *spaces, quantiles)

    def compute_q_values(self, batch: Batch, actions: torch.Tensor | None = None) -> Batch:
        """Return `qf_preds`: the mean of all quantiles, [B]."""
        return {"qf_preds": self.critics(batch, actions).mean((0, -1))}

    def forward_target(self, batch: Batch, actions: torch.Tensor | None = None) -> torch.Tensor:
        """Return the quantiles of all target critics in ascending order, [B, C K]."""
        pooled = torch.cat(tuple(self.targets(batch, actions)), -1)
        return pooled.sort(-1).values


class TQCTorchLearner(SACTorchLearner):
    """Quantile regression towards the truncated mixture of the target critics."""

    @torch.no_grad()
    def _targets(
        self, module: ModuleType, config: AlgorithmConfig, batch: Batch, alpha: torch.Tensor
    ) -> torch.Tensor:
        """Return the atoms r + gamma^n (z_i - alpha log pi), [B, M]; equation 11 of the paper."""
        following = {Columns.OBS: batch[Columns.NEXT_OBS]}
        actions, logp = module.policy(following).sample_and_logp()
        atoms = module.forward_target(following, actions)
        kept = atoms[:, : atoms.shape[1] - config.top_quantiles_to_drop_per_net * config.n_critics]
        soft = kept - (alpha * logp)[:, None]
        targets: torch.Tensor = (
            batch[Columns.REWARDS][:, None] + discounts(config.gamma, batch)[:, None] * soft
        )
        return targets

    def _critic_loss(
        self, values: torch.Tensor, targets: torch.Tensor, batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the quantile Huber loss of all critics, and mean absolute errors, [B].

        Args:
            values: Quantiles, [C, B, K].
            targets: Atoms, [B, M].
            batch: The batch, for its weights.
        """
        losses = quantile_huber_loss(values, targets)
        errors = (values.mean((0, -1)) - targets.mean(-1)).abs()
        return weighted_mean(losses, batch).sum(), errors


def quantile_huber_loss(values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean over quantiles and atoms of |tau - 1(u < 0)| Huber(u), [C, B].

    u = y_j - z_k, tau_k = (2 k + 1) / 2 K; equation 7 of the paper.

    Args:
        values: z, [C, B, K].
        targets: y, [B, M].
    """
    count = values.shape[-1]
    taus = (torch.arange(count, device=values.device) + 0.5) / count
    differences = targets[:, None, :] - values[..., None]  # [C, B, K, M]
    sizes = differences.abs()
    huber = torch.where(sizes > 1.0, sizes - 0.5, 0.5 * sizes.square())
    below = (differences.detach() < 0.0).float()
    return ((taus[:, None] - below).abs() * huber).mean((-1, -2))
