"""The losses of SAC: critics, policy and temperature."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from syncline.rl.algorithms.sac.torch.critics import frozen, smallest
from syncline.rl.algorithms.sac.torch.sac_direct import DirectSAC, direct_networks
from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.target_networks import (
    TargetNetworkLearner,
    discounts,
    weighted_mean,
)
from syncline.rl.learners.torch.train_batch import Batch
from syncline.rl.value_types import CheckedSpace, ModuleType, Selection, Tree


class SACTorchLearner(TargetNetworkLearner):
    """Three losses with separate parameters, which share one backward pass."""

    def build(self) -> None:
        """Create modules, temperatures and optimizers."""
        self.log_alphas: dict[str, nn.Parameter] = {}
        self.target_entropies: dict[str, float] = {}
        super().build()

    def configure_optimizers_for_module(self, module_id: str, config: AlgorithmConfig) -> None:
        """Create Adam for critics, policy and temperature."""
        module: ModuleType = self.module[module_id]
        self.log_alphas[module_id] = nn.Parameter(
            torch.tensor([math.log(config.initial_alpha)], device=self.device)
        )
        self.target_entropies[module_id] = _target_entropy(config, module.action_space)
        policy = [*module.pi_encoder.parameters(), *module.pi.parameters()]
        self.register_adam(module_id, "qf", list(module.critics.parameters()), config.critic_lr)
        self.register_adam(module_id, "policy", policy, config.actor_lr)
        self.register_adam(module_id, "alpha", [self.log_alphas[module_id]], config.alpha_lr)

    def make_direct_step(self, module_id: str, config: AlgorithmConfig) -> DirectSAC | None:
        """Return the step without autograd for the losses of this class."""
        networks = direct_networks(self.module[module_id])
        if type(self) is not SACTorchLearner or networks is None:
            return None
        return DirectSAC(
            networks,
            self.log_alphas[module_id],
            self.target_entropies[module_id],
            seeded=lambda: self._seeded(self.updates),
        )

    def forward_train(self, batch: dict[str, Batch]) -> Batch:
        """Return no outputs: each loss runs its own forward passes."""
        return {module_id: {} for module_id in batch}

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return the sum of the three losses."""
        module: ModuleType = self.module[module_id]
        alpha = self.log_alphas[module_id].exp().detach()
        losses = self._discrete if module.is_discrete else self._continuous
        critic_loss, policy_loss, entropy, values, errors = losses(module, config, batch, alpha)
        alpha_loss = torch.mean(
            self.log_alphas[module_id] * (entropy.detach() - self.target_entropies[module_id])
        )
        self.errors[module_id] = errors.detach()
        self.report(
            module_id,
            qf_loss=critic_loss,
            policy_loss=policy_loss,
            alpha_loss=alpha_loss,
            alpha_value=alpha,
            target_entropy=self.target_entropies[module_id],
            entropy=entropy,
            qf_mean=values,
            td_error_mean=errors,
        )
        loss: torch.Tensor = critic_loss + policy_loss + alpha_loss
        return loss

    def _continuous(
        self, module: ModuleType, config: AlgorithmConfig, batch: Batch, alpha: torch.Tensor
    ) -> Tree:
        """Return critic loss, policy loss, entropies, values and errors."""
        targets = self._targets(module, config, batch, alpha)
        values = module.critics(batch, batch[Columns.ACTIONS])
        critic_loss, errors = self._critic_loss(values, targets, batch)
        policy_loss, entropy = self._policy_loss(module, config, batch, alpha)
        return critic_loss, policy_loss, entropy, values[0], errors

    @torch.no_grad()
    def _targets(
        self, module: ModuleType, config: AlgorithmConfig, batch: Batch, alpha: torch.Tensor
    ) -> torch.Tensor:
        """Return r + gamma^n (min_i Q'_i(s', a') - alpha log pi(a' | s')), [B]; equation 3."""
        following = {Columns.OBS: batch[Columns.NEXT_OBS]}
        actions, logp = module.policy(following).sample_and_logp()
        soft = module.forward_target(following, actions) - alpha * logp
        targets: torch.Tensor = batch[Columns.REWARDS] + discounts(config.gamma, batch) * soft
        return targets

    def _policy_loss(
        self, module: ModuleType, config: AlgorithmConfig, batch: Batch, alpha: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return E[alpha log pi(a | s) - Q(s, a)], equation 7, and the entropies, [B]."""
        actions, logp = module.policy(batch).rsample_and_logp()
        with frozen(module.critics):
            values = module.compute_q_values(batch, actions)["qf_preds"]
        return (alpha * logp - values).mean(), -logp

    def _discrete(
        self, module: ModuleType, config: AlgorithmConfig, batch: Batch, alpha: torch.Tensor
    ) -> Tree:
        """Return the same with expectations over all actions instead of samples."""
        following = {Columns.OBS: batch[Columns.NEXT_OBS]}
        with torch.no_grad():
            logp = torch.log_softmax(module.policy_inputs(following), -1)
            soft = (logp.exp() * (module.forward_target(following) - alpha * logp)).sum(-1)
            targets = batch[Columns.REWARDS] + discounts(config.gamma, batch) * soft
        index = batch[Columns.ACTIONS].long().unsqueeze(-1)
        all_values = module.critics(batch)
        values = all_values.gather(-1, index.expand(len(all_values), -1, -1)).squeeze(-1)
        critic_loss, errors = self._critic_loss(values, targets, batch)
        logp = torch.log_softmax(module.policy_inputs(batch), -1)
        best = smallest(all_values.detach())
        policy_loss = (logp.exp() * (alpha * logp - best)).sum(-1).mean()
        return critic_loss, policy_loss, -(logp.exp() * logp).sum(-1), values[0], errors

    def _critic_loss(
        self, values: torch.Tensor, targets: torch.Tensor, batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weighted squared errors of all critics, and the mean absolute errors."""
        differences = values - targets
        loss = 0.5 * weighted_mean(differences.square(), batch).sum()
        return loss, differences.abs().mean(0)

    def get_state(
        self, components: Selection = None, *, not_components: Selection = None, **kwargs: object
    ) -> StateDict:
        """Return modules, optimizers, counters and temperatures."""
        return {
            **super().get_state(components, not_components=not_components, **kwargs),
            "log_alphas": {
                module_id: each.detach().cpu().numpy().copy()
                for module_id, each in self.log_alphas.items()
            },
        }

    @torch.no_grad()
    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        super().set_state(state)
        for module_id, value in state.get("log_alphas", {}).items():
            if module_id in self.log_alphas:
                self.log_alphas[module_id].copy_(torch.from_numpy(np.asarray(value)))


def _target_entropy(config: AlgorithmConfig, space: CheckedSpace) -> float:
    if config.target_entropy not in ("auto", None):
        return float(config.target_entropy)
    if isinstance(space, gym.spaces.Discrete):
        return 0.98 * math.log(space.n)
    return -float(np.prod(space.shape))
