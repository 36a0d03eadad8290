"""The losses of TD3: critics, and a delayed policy."""

from __future__ import annotations

import torch

from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.optimizers import Gradients
from syncline.rl.learners.torch.target_networks import (
    TargetNetworkLearner,
    discounts,
    weighted_mean,
)
from syncline.rl.learners.torch.train_batch import Batch
from syncline.rl.value_types import ModuleType


class TD3TorchLearner(TargetNetworkLearner):
    """Updates the critics every time, the policy and the targets every `policy_delay` updates."""

    def configure_optimizers_for_module(self, module_id: str, config: AlgorithmConfig) -> None:
        """Create Adam for critics and policy."""
        module: ModuleType = self.module[module_id]
        self.register_adam(module_id, "qf", list(module.critics.parameters()), config.critic_lr)
        self.register_adam(module_id, "policy", list(module.policy.parameters()), config.actor_lr)

    def forward_train(self, batch: dict[str, Batch]) -> Batch:
        """Return no outputs: each loss runs its own forward passes."""
        return {module_id: {} for module_id in batch}

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return the loss of the critics and, if it is due, of the policy."""
        module: ModuleType = self.module[module_id]
        targets = self._targets(module, config, batch)
        values = module.critics(batch, batch[Columns.ACTIONS])
        differences = values - targets
        critic_loss = weighted_mean(differences.square(), batch).sum()
        if config.l2_reg:
            squares = [each.square().sum() for each in module.critics.parameters()]
            critic_loss = critic_loss + 0.5 * config.l2_reg * torch.stack(squares).sum()
        errors = differences.detach().abs().mean(0)
        self.errors[module_id] = errors
        found = {"qf_loss": critic_loss, "qf_mean": values[0], "td_error_mean": errors}
        loss: torch.Tensor = critic_loss
        if self._is_policys_turn(config):
            found["policy_loss"] = policy_loss = -module.value_of_policy(batch).mean()
            loss = loss + policy_loss
        self.report(module_id, **{**self._reported.get(module_id, {}), **found})
        return loss

    @torch.no_grad()
    def _targets(self, module: ModuleType, config: AlgorithmConfig, batch: Batch) -> torch.Tensor:
        """Return r + gamma^n min_i Q'_i(s', pi'(s') + noise), [B]; equation 14 of the paper."""
        following = {Columns.OBS: batch[Columns.NEXT_OBS]}
        actions = module.target_policy(following)
        if config.smooth_target_policy:
            noise = config.target_noise * torch.randn_like(actions)
            limit = config.target_noise_clip
            actions = (actions + noise.clamp(-limit, limit)).clamp(-1.0, 1.0)
        future = discounts(config.gamma, batch) * module.forward_target(following, actions)
        targets: torch.Tensor = batch[Columns.REWARDS] + future
        return targets

    def _is_policys_turn(self, config: AlgorithmConfig) -> bool:
        return self.updates % int(config.policy_delay) == 0

    def apply_gradients(self, gradients_dict: Gradients) -> None:
        """Take one step of the critics, and of the policies that are due.

        A policy is skipped rather than given zero gradients, because Adam's momentum would move it.
        """
        for module_id in self.optimizers.module_ids:
            if not self._is_policys_turn(self.config.get_config_for_module(module_id)):
                module: ModuleType = self.module[module_id]
                for parameter in module.policy.parameters():
                    gradients_dict.pop(parameter, None)
        super().apply_gradients(gradients_dict)

    def is_target_due(self, module_id: str, config: AlgorithmConfig, step: int) -> bool:
        """Return True if the target networks of a module are due; they move with the policy."""
        return self._is_policys_turn(config) and super().is_target_due(module_id, config, step)
