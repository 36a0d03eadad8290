"""The loss of AlphaZero (Silver et al. 2017, https://arxiv.org/abs/1712.01815)."""

from __future__ import annotations

import torch

from syncline.rl.algorithms.alpha_zero.alpha_zero_env_runner import MCTS_POLICIES
from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.torch_learner import TorchLearner
from syncline.rl.learners.torch.train_batch import Batch


class AlphaZeroTorchLearner(TorchLearner):
    """Minimizes (z - v)^2 - pi log p."""

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return the sum of the value's squared error and the policy's cross-entropy."""
        log_p = torch.log_softmax(fwd_out[Columns.ACTION_DIST_INPUTS], -1)
        found = batch[MCTS_POLICIES]
        # A masked action has probability 0 in both; its log is finite, so the product is 0.
        policy_loss = -(found * log_p).sum(-1).mean()
        errors = batch[Columns.VALUE_TARGETS] - fwd_out[Columns.VF_PREDS]
        vf_loss = errors.square().mean()
        entropy = -(log_p.exp() * log_p).sum(-1).mean()
        loss: torch.Tensor = policy_loss + config.vf_loss_coeff * vf_loss
        self.metrics.log_dict(
            {"policy_loss": policy_loss, "vf_loss": vf_loss, "entropy": entropy},
            key=module_id,
            window=1,
        )
        return loss
