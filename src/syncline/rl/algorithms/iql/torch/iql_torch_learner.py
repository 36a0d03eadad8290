"""The networks of IQL (SAC's networks and a value function) and its three losses."""

from __future__ import annotations

import gymnasium as gym
import torch

from syncline.rl.algorithms.sac.torch.critics import Critic
from syncline.rl.algorithms.sac.torch.sac_torch_module import DefaultSACTorchRLModule
from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.target_networks import TargetNetworkLearner, discounts
from syncline.rl.learners.torch.train_batch import Batch
from syncline.rl.modules.apis import ValueFunctionAPI
from syncline.rl.value_types import ModuleType, Tree

LARGEST_WEIGHT = 100.0
"""Maximum weight of a recorded action."""


class DefaultIQLTorchRLModule(DefaultSACTorchRLModule, ValueFunctionAPI):
    """A policy, one or two critics and a value function."""

    def setup(self) -> None:
        """Create the networks."""
        if not isinstance(self.action_space, gym.spaces.Box):
            raise ValueError(
                f"IQL needs a Box action space, not {self.action_space}. Use BC or MARWIL for "
                "Discrete actions."
            )
        super().setup()
        self.vf = Critic(self.catalog, self.model_config, self.observation_space, None)

    def get_non_inference_attributes(self) -> list[str]:
        """Return critics and value function."""
        return [*super().get_non_inference_attributes(), "vf"]

    def compute_values(self, batch: Batch, embeddings: Tree = None) -> torch.Tensor:
        """Return V(s), [B]."""
        values: torch.Tensor = self.vf(batch)
        return values


class IQLTorchLearner(TargetNetworkLearner):
    """Three losses with separate parameters, which share one backward pass."""

    def configure_optimizers_for_module(self, module_id: str, config: AlgorithmConfig) -> None:
        """Create Adam for critics, policy and value function."""
        module: ModuleType = self.module[module_id]
        policy = [*module.pi_encoder.parameters(), *module.pi.parameters()]
        self.register_adam(module_id, "qf", list(module.critics.parameters()), config.critic_lr)
        self.register_adam(module_id, "policy", policy, config.actor_lr)
        self.register_adam(module_id, "value", list(module.vf.parameters()), config.value_lr)

    def forward_train(self, batch: dict[str, Batch]) -> Batch:
        """Return no outputs: each loss runs its own forward passes."""
        return {module_id: {} for module_id in batch}

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return the sum of the losses: equations 5, 6 and 7 of the paper."""
        module: ModuleType = self.module[module_id]
        with torch.no_grad():
            recorded = module.forward_target(batch, batch[Columns.ACTIONS])
            following = module.compute_values({Columns.OBS: batch[Columns.NEXT_OBS]})
            targets = batch[Columns.REWARDS] + discounts(config.gamma, batch) * following
        advantages = recorded - module.compute_values(batch)
        vf_loss = expectile_loss(advantages, config.expectile).mean()
        values = module.critics(batch, batch[Columns.ACTIONS])
        critic_loss = (values - targets).square().mean(-1).sum()
        weights = torch.exp(config.beta * advantages.detach()).clamp(max=LARGEST_WEIGHT)
        policy_loss = -(weights * module.policy(batch).logp(batch[Columns.ACTIONS])).mean()
        self.report(
            module_id,
            policy_loss=policy_loss,
            qf_loss=critic_loss,
            vf_loss=vf_loss,
            qf_mean=values[0],
            mean_weight=weights,
        )
        loss: torch.Tensor = policy_loss + critic_loss + vf_loss
        return loss


def expectile_loss(differences: torch.Tensor, expectile: float) -> torch.Tensor:
    """Return |expectile - 1(u < 0)| u^2, equation 5 of the paper."""
    weights = torch.where(differences > 0, expectile, 1.0 - expectile)
    return weights * differences.square()
