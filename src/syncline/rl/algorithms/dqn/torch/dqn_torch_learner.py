"""The loss of DQN: temporal-difference errors of Q-values, or of their distributions (C51)."""

from __future__ import annotations

import torch
from torch.nn import functional

from syncline.rl.algorithms.dqn.torch.dqn_direct import DirectDQN, direct_dqn
from syncline.rl.algorithms.dqn.torch.dqn_torch_module import (
    QF_LOGITS,
    QF_NEXT_PREDS,
    QF_PREDS,
    QF_TARGET_NEXT_PREDS,
    QF_TARGET_NEXT_PROBS,
)
from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.target_networks import (
    TargetNetworkLearner,
    discounts,
    weighted_mean,
)
from syncline.rl.learners.torch.train_batch import Batch

QF_LOSS_KEY = "qf_loss"
QF_MEAN_KEY = "qf_mean"
QF_MAX_KEY = "qf_max"
QF_MIN_KEY = "qf_min"
TD_ERROR_MEAN_KEY = "td_error_mean"


class DQNTorchLearner(TargetNetworkLearner):
    """Huber or squared errors to r + gamma^n Q_target(s', argmax Q(s'))."""

    def configure_optimizers_for_module(self, module_id: str, config: AlgorithmConfig) -> None:
        """Create Adam for the online network."""
        parameters = [p for p in self.get_parameters(self.module[module_id]) if p.requires_grad]
        self.register_adam(
            module_id, "default_optimizer", parameters, config.lr, eps=config.adam_epsilon
        )

    def make_direct_step(self, module_id: str, config: AlgorithmConfig) -> DirectDQN | None:
        """Return the step without autograd for the loss of this class."""
        if type(self) is not DQNTorchLearner:
            return None
        return direct_dqn(self.module[module_id], config)

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return the weighted mean of the losses of all errors."""
        actions = batch[Columns.ACTIONS].unsqueeze(-1).long()
        chosen = fwd_out[QF_PREDS].gather(-1, actions).squeeze(-1)
        if config.num_atoms > 1:
            losses, errors = self._distributional(config, batch, fwd_out, actions)
        else:
            errors, losses = self._errors(config, batch, fwd_out, chosen)
        loss = weighted_mean(losses, batch)
        self.errors[module_id] = errors.detach()
        self.report(
            module_id, **{QF_LOSS_KEY: loss, QF_MEAN_KEY: chosen, TD_ERROR_MEAN_KEY: errors}
        )
        return loss

    def _errors(
        self, config: AlgorithmConfig, batch: Batch, fwd_out: Batch, chosen: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the errors and their losses."""
        with torch.no_grad():
            following = fwd_out[QF_TARGET_NEXT_PREDS]
            if config.double_q:
                best = fwd_out[QF_NEXT_PREDS].argmax(-1, keepdim=True)
                values = following.gather(-1, best).squeeze(-1)
            else:
                values = following.max(-1).values
            targets = batch[Columns.REWARDS] + discounts(config.gamma, batch) * values
        if config.td_error_loss_fn == "huber":
            losses = functional.huber_loss(chosen, targets, reduction="none")
        else:
            losses = functional.mse_loss(chosen, targets, reduction="none")
        return chosen - targets, losses

    def _distributional(
        self, config: AlgorithmConfig, batch: Batch, fwd_out: Batch, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the cross-entropies to the projected distributions, as errors and losses."""
        index = actions.unsqueeze(-1).expand(-1, 1, config.num_atoms)
        logits = fwd_out[QF_LOGITS].gather(1, index).squeeze(1)
        with torch.no_grad():
            chooser = fwd_out[QF_NEXT_PREDS if config.double_q else QF_TARGET_NEXT_PREDS]
            best = chooser.argmax(-1)[:, None, None].expand(-1, 1, config.num_atoms)
            probabilities = fwd_out[QF_TARGET_NEXT_PROBS].gather(1, best).squeeze(1)
            targets = project(
                probabilities,
                batch[Columns.REWARDS],
                discounts(config.gamma, batch),
                config.v_min,
                config.v_max,
            )
        losses = -(targets * torch.log_softmax(logits, -1)).sum(-1)
        return losses, losses


def project(
    probabilities: torch.Tensor,
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    v_min: float,
    v_max: float,
) -> torch.Tensor:
    """Return the projection of r + discount z onto the atoms, [B, atoms].

    Algorithm 1 of Bellemare et al. 2017 (https://arxiv.org/abs/1707.06887).

    Args:
        probabilities: Probability of each atom, [B, atoms].
        rewards: [B].
        discounts: [B]; 0 after terminal states.
        v_min: Smallest atom.
        v_max: Largest atom.
    """
    count = probabilities.shape[-1]
    atoms = torch.linspace(v_min, v_max, count, device=probabilities.device)
    shifted = (rewards[:, None] + discounts[:, None] * atoms).clamp(v_min, v_max)
    places = (shifted - v_min) / (v_max - v_min) * (count - 1)
    lower = places.floor().clamp(0, count - 2)
    upper_share = places - lower
    projected = torch.zeros_like(probabilities)
    projected.scatter_add_(1, lower.long(), probabilities * (1.0 - upper_share))
    projected.scatter_add_(1, lower.long() + 1, probabilities * upper_share)
    return projected
