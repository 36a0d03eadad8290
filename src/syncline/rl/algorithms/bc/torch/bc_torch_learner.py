"""The loss of behavior cloning: the negative log-likelihood of the recorded actions."""

from __future__ import annotations

import torch

from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.torch_learner import TorchLearner
from syncline.rl.learners.torch.train_batch import Batch, masked_mean
from syncline.rl.value_types import ModuleType

POLICY_LOSS_KEY = "policy_loss"


class BCTorchLearner(TorchLearner):
    """Trains a policy to take the recorded actions."""

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return -E[log pi(a | s)]."""
        module: ModuleType = self.module[module_id]
        policy = module.get_train_action_dist_cls().from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        loss = -masked_mean(policy.logp(batch[Columns.ACTIONS]), batch)
        self.metrics.log_value((module_id, POLICY_LOSS_KEY), loss, window=1)
        return loss
