"""The loss of APPO: IMPACT (Luo et al. 2020, https://arxiv.org/abs/1912.00167).

A target policy follows the learner's policy in steps. V-trace estimates the advantages of the
target policy, and the probability ratio to it is clipped, so batches of any age move the policy by
a bounded amount.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from syncline.rl.algorithms.impala.torch.impala_torch_learner import IMPALATorchLearner
from syncline.rl.algorithms.ppo.torch.ppo_torch_learner import (
    LEARNER_RESULTS_CURR_KL_COEFF_KEY,
    LEARNER_RESULTS_KL_KEY,
    adapted_kl_coeff,
)
from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.target_networks import NUM_TARGET_UPDATES, move_targets
from syncline.rl.learners.torch.train_batch import Batch, masked_mean
from syncline.rl.modules.rl_module import RLModule
from syncline.rl.returns.vtrace import vtrace
from syncline.rl.value_types import ModuleType, Selection

TARGET_LOGP = "target_action_logp"
LARGEST_SAMPLER_RATIO = 2.0
"""Limit of mu / pi_target in the ratio to the target policy (rho in the paper's section 3.1)."""


class APPOTorchLearner(IMPALATorchLearner):
    """The clipped objective on V-trace advantages, with a target policy."""

    def build(self) -> None:
        """Create modules, target modules and optimizers."""
        super().build()
        self.curr_kl_coeffs_per_module: dict[str, float] = {}
        self._targets: dict[str, RLModule] = {}
        self._passes = 0

    def target(self, module_id: str) -> RLModule:
        """Return the target of a module, created with the same weights."""
        if module_id not in self._targets:
            target: Any = copy.deepcopy(self.module[module_id])
            target.unwrapped().requires_grad_(False)
            self._targets[module_id] = target
        return self._targets[module_id]

    def postprocess(
        self, module_id: str, config: AlgorithmConfig, fragment: Fragment
    ) -> dict[str, Tree]:
        """Return advantages, value targets and log-probabilities of the target policy, [T, N]."""
        log_ratios = self.log_ratios(self.target(module_id), fragment)
        target_logp = log_ratios + fragment.columns[Columns.ACTION_LOGP]
        if not config.vtrace:
            return {**super().postprocess(module_id, config, fragment), TARGET_LOGP: target_logp}
        values, next_values = self.values(module_id, fragment)
        targets, advantages = vtrace(
            log_ratios,
            fragment.rewards,
            values,
            next_values,
            fragment.ends,
            config.gamma,
            config.vtrace_clip_rho_threshold,
            config.vtrace_clip_pg_rho_threshold,
        )
        return {
            Columns.ADVANTAGES: advantages,
            Columns.VALUE_TARGETS: targets,
            TARGET_LOGP: target_logp,
        }

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return -E[min(r A, clip(r) A)] + value loss - entropy bonus + KL penalty.

        r = min(mu / pi_target, 2) pi / mu, which is pi / pi_target unless mu is far from it.
        """
        policy = self.policy(module_id, fwd_out)
        advantages, sampled = batch[Columns.ADVANTAGES], batch[Columns.ACTION_LOGP]
        to_target = torch.exp(sampled - batch[TARGET_LOGP]).clamp(max=LARGEST_SAMPLER_RATIO)
        ratio = to_target * torch.exp(policy.logp(batch[Columns.ACTIONS]) - sampled)
        clipped = torch.clamp(ratio, 1 - config.clip_param, 1 + config.clip_param)
        objective = torch.minimum(advantages * ratio, advantages * clipped)
        policy_loss = -masked_mean(objective, batch)
        loss = policy_loss + self.critic_and_entropy_loss(
            module_id, config, batch, fwd_out, policy, policy_loss
        )
        if config.use_kl_loss:
            kl = masked_mean(self._target_policy(module_id, batch).kl(policy), batch)
            coefficient = self.curr_kl_coeffs_per_module.setdefault(module_id, config.kl_coeff)
            loss = loss + coefficient * kl
            self.metrics.log_value((module_id, LEARNER_RESULTS_KL_KEY), kl, reduce="mean")
        return loss

    def _target_policy(self, module_id: str, batch: Batch) -> Any:
        module: ModuleType = self.target(module_id)
        with torch.no_grad():
            inputs = module.forward_train(batch)[Columns.ACTION_DIST_INPUTS]
        return module.get_train_action_dist_cls().from_logits(inputs)

    def after_gradient_based_update(self, *, timesteps: dict[str, int]) -> None:
        """Move the targets and adapt the KL coefficients when they are due."""
        super().after_gradient_based_update(timesteps=timesteps)
        self._passes += 1
        for module_id in self.module:
            config: AlgorithmConfig = self.config.get_config_for_module(module_id)
            if self._passes % config.passes_per_target_update or module_id not in self._targets:
                continue
            move_targets(
                [(self.module[module_id].unwrapped(), self._targets[module_id].unwrapped())],
                config.tau,
            )
            self.metrics.log_value((module_id, NUM_TARGET_UPDATES), 1, reduce="lifetime_sum")
            if config.use_kl_loss:
                self._adapt_kl(module_id, config)

    def _adapt_kl(self, module_id: str, config: AlgorithmConfig) -> None:
        key = (module_id, LEARNER_RESULTS_KL_KEY)
        kl = self.average(float(self.metrics.peek(key))) if key in self.metrics else np.nan
        coefficient = adapted_kl_coeff(
            self.curr_kl_coeffs_per_module.get(module_id, config.kl_coeff), kl, config.kl_target
        )
        self.curr_kl_coeffs_per_module[module_id] = coefficient
        self.metrics.log_value(
            (module_id, LEARNER_RESULTS_CURR_KL_COEFF_KEY), coefficient, window=1
        )

    # -- state

    def remove_module(self, module_id: str, **options: object) -> None:
        """Remove a module, its target and its optimizers."""
        super().remove_module(module_id, **options)
        self._targets.pop(module_id, None)
        self.curr_kl_coeffs_per_module.pop(module_id, None)

    def get_state(
        self, components: Selection = None, *, not_components: Selection = None, **kwargs: object
    ) -> StateDict:
        """Return modules, targets, optimizers, counters and KL coefficients."""
        return {
            **super().get_state(components, not_components=not_components, **kwargs),
            "kl_coeffs": dict(self.curr_kl_coeffs_per_module),
            "targets": {
                module_id: module.get_state() for module_id, module in self._targets.items()
            },
            "passes": self._passes,
        }

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        super().set_state(state)
        self.curr_kl_coeffs_per_module.update(state.get("kl_coeffs", {}))
        for module_id, saved in state.get("targets", {}).items():
            if module_id in self.module:
                self.target(module_id).set_state(saved)
        self._passes = state.get("passes", self._passes)
