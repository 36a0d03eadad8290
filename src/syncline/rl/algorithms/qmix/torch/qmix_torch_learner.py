"""The loss of QMIX: squared temporal-difference errors of the team's value."""

from __future__ import annotations

from typing import Any

import torch

from syncline.rl.algorithms.qmix.torch.qmix_torch_module import Q_CHOSEN, TEAM_CHOSEN, TEAM_NEXT
from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.optimizers import DEFAULT_OPTIMIZER
from syncline.rl.learners.torch.target_networks import TargetNetworkLearner
from syncline.rl.learners.torch.train_batch import Batch, TrainBatch, as_tensors


class QMixTorchLearner(TargetNetworkLearner):
    """Moves Q_tot(s, u) towards r + gamma Q_tot_target(s', argmax q(s'))."""

    def configure_optimizers_for_module(self, module_id: str, config: AlgorithmConfig) -> None:
        """Create RMSProp for the online networks."""
        parameters = [p for p in self.get_parameters(self.module[module_id]) if p.requires_grad]
        self.register_optimizer(
            module_id=module_id,
            optimizer_name=DEFAULT_OPTIMIZER,
            optimizer=torch.optim.RMSprop(
                parameters, lr=0.0, alpha=config.optim_alpha, eps=config.optim_eps
            ),
            params=parameters,
            lr_or_lr_schedule=config.lr,
        )

    def batch_of_rows(self, columns: Any) -> TrainBatch:
        """Return padded episodes as a batch."""
        return TrainBatch(
            columns=as_tensors(dict(columns), self.device),
            num_rows=int(columns[Columns.LOSS_MASK].sum()),
            is_sequence=True,
        )

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return the mean squared error over all steps and, without a mixer, over agents."""
        chosen, following = fwd_out[TEAM_CHOSEN], fwd_out[TEAM_NEXT]
        rewards = batch[Columns.REWARDS]
        discounts = config.gamma * (~batch[Columns.TERMINATEDS]).float()
        mask = batch[Columns.LOSS_MASK].float()
        if chosen.dim() == 3:  # independent agents
            rewards, discounts, mask = (
                each.unsqueeze(-1).expand_as(chosen) for each in (rewards, discounts, mask)
            )
        errors = (chosen - (rewards + discounts * following)) * mask
        loss: torch.Tensor = errors.square().sum() / mask.sum()
        steps = batch[Columns.LOSS_MASK].unsqueeze(-1)
        agents = fwd_out[Q_CHOSEN]
        self.metrics.log_dict(
            {
                "qf_loss": loss,
                "td_error_mean": errors.abs().sum() / mask.sum(),
                "qf_mean": (agents * steps).sum() / (steps.sum() * agents.shape[-1]),
                "q_team_mean": (chosen * mask).sum() / mask.sum(),
            },
            key=module_id,
            window=1,
        )
        return loss
