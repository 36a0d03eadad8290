"""The loss of A2C (Mnih et al. 2016, https://arxiv.org/abs/1602.01783, with one worker thread that
steps all environments together).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, first_leaf, map_tree
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.actor_critic_learner import (
    ENTROPY_KEY,
    POLICY_LOSS_KEY,
    VF_LOSS_KEY,
    ActorCriticLearner,
)
from syncline.rl.learners.torch.optimizers import Gradients
from syncline.rl.learners.torch.train_batch import Batch, masked_mean
from syncline.rl.returns.gae import gae
from syncline.rl.returns.n_step import discounted_returns
from syncline.rl.value_types import ModuleType


class A2CTorchLearner(ActorCriticLearner):
    """Takes one policy gradient step on the whole batch."""

    def postprocess(
        self, module_id: str, config: AlgorithmConfig, fragment: Fragment
    ) -> dict[str, Tree]:
        """Return advantages and value targets [T, N]."""
        rewards, ends = fragment.rewards, fragment.ends
        if not config.use_critic:
            returns = discounted_returns(rewards, ends, config.gamma)
            return {Columns.ADVANTAGES: returns, Columns.VALUE_TARGETS: returns}
        values, next_values = self.values(module_id, fragment)
        lambda_ = config.lambda_ if config.use_gae else 1.0
        advantages = gae(rewards, values, next_values, ends, config.gamma, lambda_)
        return {Columns.ADVANTAGES: advantages, Columns.VALUE_TARGETS: advantages + values}

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return -E[A log pi(a | s)] + c_v E[(V - target)^2] / 2 - c_e E[entropy]."""
        policy = self.policy(module_id, fwd_out)
        logp = policy.logp(batch[Columns.ACTIONS])
        policy_loss = -masked_mean(batch[Columns.ADVANTAGES] * logp, batch)
        entropy = masked_mean(policy.entropy(), batch)
        loss = policy_loss - self.entropy_coeffs[module_id] * entropy
        logged = {POLICY_LOSS_KEY: policy_loss, ENTROPY_KEY: entropy}
        if config.use_critic:
            module: ModuleType = self.module[module_id]
            values = module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS))
            errors = torch.square(values - batch[Columns.VALUE_TARGETS])
            vf_loss = 0.5 * masked_mean(errors, batch)
            loss = loss + config.vf_loss_coeff * vf_loss
            logged[VF_LOSS_KEY] = vf_loss
        self.metrics.log_dict(logged, key=module_id, window=1)
        return loss

    # -- microbatches

    def _update_once(self, batch: dict[str, Batch]) -> None:
        """Take one step on the sum of the gradients of microbatches."""
        rows = self.config.microbatch_size
        if rows is None:
            super()._update_once(batch)
            return
        self.optimizers.zero_gradients(batch)
        own, weights = self.own_share(batch)
        gradients: Gradients = {}
        for module_id, columns in own.items():
            for piece, share in _pieces(columns, rows):
                only = {module_id: piece}
                loss = self.weighted(self.losses_of(only), weights)[module_id] * share
                gradients.update(self.compute_gradients({module_id: loss}))
        self.average_gradients(batch, gradients)
        self.apply_gradients(self.postprocess_gradients(gradients))


def _pieces(columns: Batch, rows: int) -> Iterator[tuple[Batch, torch.Tensor]]:
    """Yield pieces of about `rows` rows with their fractions of all rows."""
    mask = columns.get(Columns.LOSS_MASK)
    if mask is None:
        mask = torch.ones(len(first_leaf(columns)), dtype=torch.bool)
    else:
        rows = max(rows // mask.shape[1], 1)
    for start in range(0, len(mask), rows):
        part = slice(start, start + rows)
        piece = {
            name: map_tree(lambda leaf, part=part: leaf[part], column)
            for name, column in columns.items()
        }
        yield piece, mask[part].sum() / mask.sum()
