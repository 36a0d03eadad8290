"""The loss of IMPALA (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561).

V-trace targets and advantages are computed once per update with the weights before it; several
epochs or minibatches share them.
"""

from __future__ import annotations

from typing import Any

import torch

from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.actor_critic_learner import (
    ENTROPY_KEY,
    POLICY_LOSS_KEY,
    VF_LOSS_KEY,
    ActorCriticLearner,
)
from syncline.rl.learners.torch.optimizers import DEFAULT_OPTIMIZER
from syncline.rl.learners.torch.train_batch import Batch, masked_mean
from syncline.rl.returns.gae import gae
from syncline.rl.returns.vtrace import vtrace
from syncline.rl.value_types import ModuleType


class IMPALATorchLearner(ActorCriticLearner):
    """Policy gradient, value loss and entropy bonus with V-trace."""

    def configure_optimizers_for_module(self, module_id: str, config: AlgorithmConfig) -> None:
        """Create Adam, or RMSProp with `opt_type="rmsprop"`."""
        parameters = self.get_parameters(self.module[module_id])
        if config.opt_type == "adam" or not parameters:
            super().configure_optimizers_for_module(module_id, config)
            return
        self.register_optimizer(
            module_id=module_id,
            optimizer_name=DEFAULT_OPTIMIZER,
            optimizer=torch.optim.RMSprop(
                parameters, alpha=config.decay, eps=config.epsilon, momentum=config.momentum
            ),
            params=parameters,
            lr_or_lr_schedule=config.lr,
        )

    def postprocess(
        self, module_id: str, config: AlgorithmConfig, fragment: Fragment
    ) -> dict[str, Tree]:
        """Return advantages and value targets [T, N]."""
        values, next_values = self.values(module_id, fragment)
        rewards, ends = fragment.rewards, fragment.ends
        if not config.vtrace:
            lambda_ = config.lambda_ if config.use_gae else 1.0
            advantages = gae(rewards, values, next_values, ends, config.gamma, lambda_)
            return {Columns.ADVANTAGES: advantages, Columns.VALUE_TARGETS: advantages + values}
        targets, advantages = vtrace(
            self.log_ratios(self.module[module_id], fragment),
            rewards,
            values,
            next_values,
            ends,
            config.gamma,
            config.vtrace_clip_rho_threshold,
            config.vtrace_clip_pg_rho_threshold,
        )
        return {Columns.ADVANTAGES: advantages, Columns.VALUE_TARGETS: targets}

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return -E[A log pi(a | s)] + c_v E[(V - v)^2] / 2 - c_e E[entropy]."""
        policy = self.policy(module_id, fwd_out)
        objective = batch[Columns.ADVANTAGES] * policy.logp(batch[Columns.ACTIONS])
        policy_loss = -masked_mean(objective, batch)
        return policy_loss + self.critic_and_entropy_loss(
            module_id, config, batch, fwd_out, policy, policy_loss
        )

    def critic_and_entropy_loss(
        self,
        module_id: str,
        config: AlgorithmConfig,
        batch: Batch,
        fwd_out: Batch,
        policy: Any,
        policy_loss: torch.Tensor,
    ) -> torch.Tensor:
        """Return the other parts of the loss, and log all parts."""
        module: ModuleType = self.module[module_id]
        values = module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS))
        errors = torch.square(values - batch[Columns.VALUE_TARGETS])
        vf_loss = 0.5 * masked_mean(errors, batch)
        entropy = masked_mean(policy.entropy(), batch)
        self.metrics.log_dict(
            {POLICY_LOSS_KEY: policy_loss, VF_LOSS_KEY: vf_loss, ENTROPY_KEY: entropy},
            key=module_id,
            window=1,
        )
        loss: torch.Tensor = config.vf_loss_coeff * vf_loss
        return loss - self.entropy_coeffs[module_id] * entropy
