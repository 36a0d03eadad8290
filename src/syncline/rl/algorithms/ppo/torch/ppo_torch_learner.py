"""The loss of PPO (Schulman et al. 2017, https://arxiv.org/abs/1707.06347)."""

from __future__ import annotations

import numpy as np
import torch

from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.schedule import Schedule
from syncline.rl.connectors.to_learner.train_columns import AddOneTsToEpisodesAndTruncate
from syncline.rl.connectors.torch.advantages_torch import GeneralAdvantageEstimation
from syncline.rl.learners.torch.torch_learner import TorchLearner
from syncline.rl.learners.torch.train_batch import Batch, TrainBatch, masked_mean
from syncline.rl.metrics.names import NUM_ENV_STEPS_SAMPLED_LIFETIME
from syncline.rl.returns.gae import gae
from syncline.rl.returns.n_step import discounted_returns
from syncline.rl.value_types import ModuleType, Selection

LEARNER_RESULTS_CURR_KL_COEFF_KEY = "curr_kl_coeff"
LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY = "curr_entropy_coeff"
LEARNER_RESULTS_KL_KEY = "mean_kl_loss"
LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY = "vf_explained_var"
LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY = "vf_loss_unclipped"
POLICY_LOSS_KEY = "policy_loss"
VF_LOSS_KEY = "vf_loss"
ENTROPY_KEY = "entropy"


class PPOTorchLearner(TorchLearner):
    """Advantages with GAE, the clipped objective, and the adaptive KL penalty."""

    def build(self) -> None:
        """Create modules and optimizers."""
        super().build()
        config: AlgorithmConfig = self.config
        self._learner_connector.prepend(AddOneTsToEpisodesAndTruncate())
        self._learner_connector.append(
            GeneralAdvantageEstimation(gamma=config.gamma, lambda_=config.lambda_)
        )
        self.curr_kl_coeffs_per_module: dict[str, float] = {}
        self._entropy_coeffs: dict[str, float] = {}

    # -- advantages

    def postprocess(
        self, module_id: str, config: AlgorithmConfig, fragment: Fragment
    ) -> dict[str, Tree]:
        """Return advantages and value targets [T, N]."""
        rewards, ends = fragment.rewards, trajectory_ends(fragment)
        if not config.use_critic:
            returns = discounted_returns(rewards, ends, config.gamma)
            return {Columns.ADVANTAGES: returns, Columns.VALUE_TARGETS: returns}
        values, next_values = self.values(module_id, fragment)
        lambda_ = config.lambda_ if config.use_gae else 1.0
        advantages = gae(rewards, values, next_values, ends, config.gamma, lambda_)
        return {Columns.ADVANTAGES: advantages, Columns.VALUE_TARGETS: advantages + values}

    def finish_batch(self, module_id: str, config: AlgorithmConfig, batch: TrainBatch) -> None:
        """Standardize the advantages over the whole batch."""
        advantages = batch.columns[Columns.ADVANTAGES]
        mask = batch.columns.get(Columns.LOSS_MASK)
        targets = batch.columns[Columns.VALUE_TARGETS]
        rows = advantages if mask is None else advantages[mask]
        variance = (targets if mask is None else targets[mask]).var(correction=0)
        self.metrics.log_value(
            (module_id, LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY),
            torch.clamp(1.0 - rows.var(correction=0) / (variance + 1e-8), min=-1.0),
            window=1,
        )
        batch.columns[Columns.ADVANTAGES] = (advantages - rows.mean()) / max(
            1e-4, float(rows.std(correction=0))
        )

    # -- loss

    def before_gradient_based_update(self, *, timesteps: dict[str, int]) -> None:
        """Set the entropy coefficients of this update."""
        step = int(timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0))
        for module_id in self.module:
            config: AlgorithmConfig = self.config.get_config_for_module(module_id)
            schedule = Schedule(config.entropy_coeff, "entropy_coeff")
            self._entropy_coeffs[module_id] = schedule.value(step)
            self.curr_kl_coeffs_per_module.setdefault(module_id, config.kl_coeff)

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return -E[min(r A, clip(r) A)] + value loss - entropy bonus + KL penalty."""
        module: ModuleType = self.module[module_id]
        policy = module.get_train_action_dist_cls().from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        advantages = batch[Columns.ADVANTAGES]
        ratio = torch.exp(policy.logp(batch[Columns.ACTIONS]) - batch[Columns.ACTION_LOGP])
        clipped = torch.clamp(ratio, 1 - config.clip_param, 1 + config.clip_param)
        objective = torch.minimum(advantages * ratio, advantages * clipped)
        policy_loss = -masked_mean(objective, batch)
        entropy = masked_mean(policy.entropy(), batch)
        loss = policy_loss - self._entropy_coeffs[module_id] * entropy
        logged = {POLICY_LOSS_KEY: policy_loss, ENTROPY_KEY: entropy}

        if config.use_critic:
            values = module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS))
            errors = torch.square(values - batch[Columns.VALUE_TARGETS])
            vf_loss = masked_mean(torch.clamp(errors, 0.0, config.vf_clip_param), batch)
            loss = loss + config.vf_loss_coeff * vf_loss
            logged[VF_LOSS_KEY] = vf_loss
            logged[LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY] = masked_mean(errors.detach(), batch)

        if config.use_kl_loss:
            sampled = module.get_exploration_action_dist_cls().from_logits(
                batch[Columns.ACTION_DIST_INPUTS]
            )
            kl = masked_mean(sampled.kl(policy), batch)
            if self.curr_kl_coeffs_per_module[module_id] > 0.0:
                loss = loss + self.curr_kl_coeffs_per_module[module_id] * kl
            self.metrics.log_value((module_id, LEARNER_RESULTS_KL_KEY), kl, reduce="mean")
        self.metrics.log_dict(logged, key=module_id, window=1)
        return loss

    def after_gradient_based_update(self, *, timesteps: dict[str, int]) -> None:
        """Adapt the KL coefficients."""
        for module_id, coefficient in list(self.curr_kl_coeffs_per_module.items()):
            config: AlgorithmConfig = self.config.get_config_for_module(module_id)
            key = (module_id, LEARNER_RESULTS_KL_KEY)
            if config.use_kl_loss and key in self.metrics:
                kl = self.average(float(self.metrics.peek(key)))
                coefficient = adapted_kl_coeff(coefficient, kl, config.kl_target)
                self.curr_kl_coeffs_per_module[module_id] = coefficient
                self.metrics.log_value(
                    (module_id, LEARNER_RESULTS_CURR_KL_COEFF_KEY), coefficient, window=1
                )
            self.metrics.log_value(
                (module_id, LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY),
                self._entropy_coeffs[module_id],
                window=1,
            )

    # -- state

    def remove_module(self, module_id: str, **options: object) -> None:
        """Remove a module, its coefficients and its optimizers."""
        super().remove_module(module_id, **options)
        self.curr_kl_coeffs_per_module.pop(module_id, None)
        self._entropy_coeffs.pop(module_id, None)

    def get_state(
        self, components: Selection = None, *, not_components: Selection = None, **kwargs: object
    ) -> StateDict:
        """Return modules, optimizers, counters and KL coefficients."""
        return {
            **super().get_state(components, not_components=not_components, **kwargs),
            "kl_coeffs": dict(self.curr_kl_coeffs_per_module),
        }

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        super().set_state(state)
        self.curr_kl_coeffs_per_module.update(state.get("kl_coeffs", {}))


def trajectory_ends(fragment: Fragment) -> np.ndarray:
    """Return the mask [T, N] of the last steps of episodes and trajectories."""
    return fragment.ends


def adapted_kl_coeff(coefficient: float, kl: float, target: float) -> float:
    """Return the next coefficient of the KL penalty (section 4 of the paper): x1.5 if the
    divergence is above twice its target, x0.5 below half of it; the same if it is not finite.
    """
    if np.isfinite(kl):
        if kl > 2.0 * target:
            return coefficient * 1.5
        if kl < 0.5 * target:
            return coefficient * 0.5
    return coefficient
