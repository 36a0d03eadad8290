"""The losses of DreamerV3: world model, critic and actor.

Equation numbers refer to Hafner et al. 2023 (https://arxiv.org/abs/2301.04104). Metrics have
RLlib's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from syncline.rl.algorithms.dreamerv3.sequence_replay import IS_TERMINATED
from syncline.rl.algorithms.dreamerv3.torch.dreamerv3_torch_rl_module import (
    Dream,
    DreamerV3TorchRLModule,
)
from syncline.rl.algorithms.dreamerv3.torch.formulas import TwoHot, balanced_kl, lambda_returns
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.optimizers import Gradients
from syncline.rl.learners.torch.target_networks import TargetNetworkLearner
from syncline.rl.learners.torch.train_batch import Batch, TrainBatch
from syncline.rl.value_types import Results

WORLD_MODEL, ACTOR, CRITIC = "world_model", "actor", "critic"
DYNAMICS_SCALE, REPRESENTATION_SCALE = 0.5, 0.1
"""Weights of the two KL losses (equation 4)."""
LEAST_RETURN_RANGE = 1.0
"""Smallest range of returns to divide by; a smaller range would amplify noise (equation 12)."""


class DreamerV3TorchLearner(TargetNetworkLearner):
    """Three losses with separate parameters, which share one backward pass.

    Trajectories are imagined without gradients. Critic and actor learn from all imagined states
    together, the actor with REINFORCE.
    """

    def build(self) -> None:
        """Create modules and optimizers."""
        super().build()
        self._two_hot = TwoHot(self.device)

    def configure_optimizers_for_module(self, module_id: str, config: AlgorithmConfig) -> None:
        """Create Adam for world model, actor and critic."""
        module: object = self.module[module_id]
        for name, rate, eps in (
            (WORLD_MODEL, config.world_model_lr, 1e-8),
            (ACTOR, config.actor_lr, 1e-5),
            (CRITIC, config.critic_lr, 1e-5),
        ):
            parameters = list(getattr(module, name).parameters())
            self.register_adam(module_id, name, parameters, rate, eps)

    def batch_of_rows(self, columns: Mapping[str, Tree]) -> TrainBatch:
        """Return sequences [B, T, …] as a batch."""
        batch = super().batch_of_rows(columns)
        batch.num_rows = columns[Columns.REWARDS].size
        return batch

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return the sum of the losses of world model, critic and actor."""
        module: DreamerV3TorchRLModule = self.module[module_id].unwrapped()
        continues = 1.0 - batch[IS_TERMINATED].transpose(0, 1).float()
        loss = self._world_model_loss(module_id, module, batch, fwd_out, continues)
        if not config.train_critic:
            return loss
        dream = module.dream(fwd_out["observed"], config.horizon_H)
        with torch.no_grad():
            rewards = self._two_hot.mean(module.world_model.reward(dream.features))
            likely = torch.sigmoid(module.world_model.continues(dream.features)).squeeze(-1)
            likely[0] = continues.reshape(-1)
            discounts = config.gamma * likely
            weights = torch.cumprod(discounts, 0)[:-1] / config.gamma
            slow = self._two_hot.mean(module.slow_critic(dream.features[:-1]))
            last = self._two_hot.mean(module.critic(dream.features[-1:]))
        logits = module.critic(dream.features[:-1])
        values = torch.cat([self._two_hot.mean(logits.detach()), last])
        returns = lambda_returns(rewards, values, discounts, config.gae_lambda)
        loss = loss + self._critic_loss(module_id, logits, returns, slow, weights)
        if config.train_actor:
            advantages = self._advantages(module_id, module, config, returns, values[:-1])
            loss = loss + self._actor_loss(module_id, module, config, dream, advantages, weights)
        return loss

    def _world_model_loss(
        self,
        module_id: str,
        module: DreamerV3TorchRLModule,
        batch: Batch,
        fwd_out: Batch,
        continues: torch.Tensor,
    ) -> torch.Tensor:
        """Return the loss of equation 4, averaged over B and T."""
        model, observed = module.world_model, fwd_out["observed"]
        features = observed.features
        decoder = model.decoder.loss(features, fwd_out["vector"], fwd_out["images"]).mean()
        rewards = batch[Columns.REWARDS].transpose(0, 1)
        reward = self._two_hot.loss(model.reward(features), rewards).mean()
        ends = binary_cross_entropy_with_logits(model.continues(features).squeeze(-1), continues)
        dynamics, representation = balanced_kl(observed.posterior, observed.prior)
        prediction = decoder + reward + ends
        total = (
            prediction
            + DYNAMICS_SCALE * dynamics.mean()
            + REPRESENTATION_SCALE * representation.mean()
        )
        self._log(
            module_id,
            {
                "WORLD_MODEL_learned_initial_h": model.rssm.initial_h.mean(),
                "WORLD_MODEL_L_decoder": decoder,
                "WORLD_MODEL_L_reward": reward,
                "WORLD_MODEL_L_continue": ends,
                "WORLD_MODEL_L_prediction": prediction,
                "WORLD_MODEL_L_dynamics": dynamics.mean(),
                "WORLD_MODEL_L_representation": representation.mean(),
                "WORLD_MODEL_L_total": total,
            },
        )
        return total

    def _critic_loss(
        self,
        module_id: str,
        logits: torch.Tensor,
        returns: torch.Tensor,
        slow: torch.Tensor,
        weights: torch.Tensor,
    ) -> torch.Tensor:
        """Return the cross-entropy to the returns, and to the slow critic's values (equation 10).

        Args:
            module_id: The module.
            logits: The critic's logits [H, N, bins].
            returns: Lambda returns [H, N].
            slow: Values of the slow critic [H, N].
            weights: Probability that the trajectory continues, [H, N].
        """
        to_returns, to_slow = self._two_hot.loss(logits, returns, slow)
        total: torch.Tensor = (weights * (to_returns + to_slow)).mean()
        self._log(
            module_id,
            {
                "CRITIC_L_total": total,
                "CRITIC_L_neg_logp_of_value_targets": to_returns.mean(),
                "CRITIC_L_slow_critic_regularization": to_slow.mean(),
            },
        )
        return total

    @torch.no_grad()
    def _advantages(
        self,
        module_id: str,
        module: DreamerV3TorchRLModule,
        config: AlgorithmConfig,
        returns: torch.Tensor,
        values: torch.Tensor,
    ) -> torch.Tensor:
        """Return (R - V) / max(1, S), where S is the smoothed difference of the 95th and 5th
        percentiles of the returns (equation 12).
        """
        percentiles: Any = module.return_percentiles
        levels = torch.tensor([0.05, 0.95], device=returns.device)
        found = torch.quantile(returns.flatten(), levels)
        if self.distributed:  # use the same range in all learners
            torch.distributed.all_reduce(found)
            found /= self.num_learners
        decay = config.return_normalization_decay
        kept = torch.where(torch.isnan(percentiles), found, percentiles)
        percentiles.copy_(torch.lerp(found, kept, decay))
        low, high = percentiles.unbind()
        self._log(
            module_id, {"ACTOR_value_targets_pct95_ema": high, "ACTOR_value_targets_pct5_ema": low}
        )
        advantages: torch.Tensor = (returns - values) / (high - low).clamp(min=LEAST_RETURN_RANGE)
        return advantages

    def _actor_loss(
        self,
        module_id: str,
        module: DreamerV3TorchRLModule,
        config: AlgorithmConfig,
        dream: Dream,
        advantages: torch.Tensor,
        weights: torch.Tensor,
    ) -> torch.Tensor:
        """Return the loss of REINFORCE with an entropy bonus (equation 11)."""
        inputs = module.actor(dream.features[:-1])
        logp, entropy = module.actor.logp_and_entropy(inputs, dream.actions)
        reinforce = -(weights * logp * advantages).mean()
        bonus = -config.entropy_scale * (weights * entropy).mean()
        total: torch.Tensor = reinforce + bonus
        self._log(
            module_id,
            {
                "ACTOR_L_total": total,
                "ACTOR_L_neglogp_reinforce_term": reinforce,
                "ACTOR_L_neg_entropy_term": bonus,
                "ACTOR_action_entropy": entropy.mean(),
            },
        )
        return total

    def postprocess_gradients_for_module(
        self, *, module_id: str, config: AlgorithmConfig, module_gradients_dict: Gradients
    ) -> Gradients:
        """Clip the gradients of world model, actor and critic by separate limits."""
        for name, optimizer in self.optimizers.of_module(module_id).items():
            limit = getattr(config, f"{name}_grad_clip_by_global_norm")
            norm = self.optimizers.clip(optimizer, module_gradients_dict, limit, "global_norm")
            self._log(module_id, {f"{name.upper()}_gradients_global_norm": norm})
        return module_gradients_dict

    def _log(self, module_id: str, values: Results) -> None:
        self.metrics.log_dict(
            {
                name: value.detach() if isinstance(value, torch.Tensor) else value
                for name, value in values.items()
            },
            key=module_id,
            window=1,
        )
