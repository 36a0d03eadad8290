"""The losses of CQL: the losses of SAC, and a penalty on values of unrecorded actions."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from syncline.rl.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import first_leaf, map_tree
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.target_networks import discounts
from syncline.rl.learners.torch.train_batch import Batch
from syncline.rl.value_types import ModuleType, Selection, Tree

LARGEST_WEIGHT = 1e6


class CQLTorchLearner(SACTorchLearner):
    """Adds min_q_weight (log sum_a exp Q(s, a) - Q(s, a_recorded)) to each critic's loss, CQL(H);
    equation 4 of the paper.
    """

    def build(self) -> None:
        """Create modules, temperatures, weights of penalties and optimizers."""
        self.log_penalty_weights: dict[str, nn.Parameter] = {}
        super().build()

    def configure_optimizers_for_module(self, module_id: str, config: AlgorithmConfig) -> None:
        """Create Adam for critics, policy, temperature and the weight of the penalty."""
        if self.module[module_id].is_discrete:
            raise ValueError("CQL needs a Box action space. Use BC or MARWIL for Discrete actions.")
        super().configure_optimizers_for_module(module_id, config)
        if config.lagrangian:
            weight = nn.Parameter(torch.zeros(1, device=self.device))
            self.log_penalty_weights[module_id] = weight
            self.register_adam(module_id, "penalty_weight", [weight], config.critic_lr)

    def _continuous(
        self, module: object, config: AlgorithmConfig, batch: Batch, alpha: torch.Tensor
    ) -> Tree:
        """Return SAC's losses, with the penalty added to the critics' loss."""
        critic_loss, *others = super()._continuous(module, config, batch, alpha)
        gaps = self._gaps(module, config, batch)
        module_id = self._module_id(module)
        self.metrics.log_value((module_id, "cql_loss"), gaps.mean(), window=1)
        if config.lagrangian:
            penalty = self._lagrangian(module_id, config, gaps)
        else:
            penalty = config.min_q_weight * gaps.sum()
        return critic_loss + penalty, *others

    @torch.no_grad()
    def _targets(
        self, module: ModuleType, config: AlgorithmConfig, batch: Batch, alpha: torch.Tensor
    ) -> torch.Tensor:
        """Return the targets of SAC, by default without entropy."""
        if not config.deterministic_backup:
            return super()._targets(module, config, batch, alpha)
        following = {Columns.OBS: batch[Columns.NEXT_OBS]}
        actions = module.policy(following).sample()
        future = discounts(config.gamma, batch) * module.forward_target(following, actions)
        targets: torch.Tensor = batch[Columns.REWARDS] + future
        return targets

    def _policy_loss(
        self, module: ModuleType, config: AlgorithmConfig, batch: Batch, alpha: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the policy loss of SAC; the first updates clone recorded actions instead."""
        if self.updates > config.bc_iters:
            return super()._policy_loss(module, config, batch, alpha)
        policy = module.policy(batch)
        _, logp = policy.rsample_and_logp()
        return (alpha * logp - policy.logp(batch[Columns.ACTIONS])).mean(), -logp

    def _gaps(self, module: ModuleType, config: AlgorithmConfig, batch: Batch) -> torch.Tensor:
        """Return T log sum_a exp((Q(s, a) - log p(a)) / T) - Q(s, a_recorded), averaged over the
        rows for each critic, [C].

        The actions are sampled uniformly and from the policy at s and at s'.
        """
        rows, count = len(first_leaf(batch[Columns.OBS])), config.num_actions
        repeated = {
            Columns.OBS: map_tree(lambda leaf: leaf.repeat_interleave(count, 0), batch[Columns.OBS])
        }
        recorded = module.critics(batch, batch[Columns.ACTIONS])
        values = []
        for actions, logp in self._drawn(module, batch, rows, count):
            found = module.critics(repeated, actions).view(-1, rows, count)
            values.append((found - logp) / config.temperature)
        soft_maximum = config.temperature * torch.logsumexp(torch.cat(values, -1), -1)
        gaps: torch.Tensor = (soft_maximum - recorded).mean(-1)
        return gaps

    @torch.no_grad()
    def _drawn(self, module: ModuleType, batch: Batch, rows: int, count: int) -> Tree:
        """Return actions [rows count, …] and their log-densities [rows, count], of three kinds."""
        shape = module.action_space.shape
        uniform = 2.0 * torch.rand((rows * count, *shape), device=self.device) - 1.0
        density = torch.full((), -math.log(2.0) * math.prod(shape), device=self.device)
        kinds = [(uniform, density.expand(rows, count))]
        for name in (Columns.OBS, Columns.NEXT_OBS):
            policy = module.policy({Columns.OBS: batch[name]})
            actions, logp = policy.sample_and_logp(sample_shape=(count,))
            kinds.append((actions.transpose(0, 1).reshape(rows * count, *shape), logp.T))
        return kinds

    def _lagrangian(
        self, module_id: str, config: AlgorithmConfig, gaps: torch.Tensor
    ) -> torch.Tensor:
        """Return the weighted distance of the gaps from the threshold, and the loss of the weight;
        equation 30 of the paper.
        """
        weight = self.log_penalty_weights[module_id].exp().clamp(max=LARGEST_WEIGHT)
        distance = config.min_q_weight * gaps - config.lagrangian_thresh
        self.metrics.log_value((module_id, "penalty_weight"), weight.detach(), window=1)
        loss: torch.Tensor = (weight.detach() * distance).sum() - (
            weight * distance.detach()
        ).mean()
        return loss

    def _module_id(self, module: object) -> str:
        return next(str(module_id) for module_id, each in self.module.items() if each is module)

    def get_state(
        self, components: Selection = None, *, not_components: Selection = None, **kwargs: object
    ) -> StateDict:
        """Return modules, optimizers, counters, temperatures and weights of penalties."""
        weights = {
            module_id: each.detach().cpu().numpy().copy()
            for module_id, each in self.log_penalty_weights.items()
        }
        return {
            **super().get_state(components, not_components=not_components, **kwargs),
            "log_penalty_weights": weights,
        }

    @torch.no_grad()
    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        super().set_state(state)
        for module_id, value in state.get("log_penalty_weights", {}).items():
            if module_id in self.log_penalty_weights:
                self.log_penalty_weights[module_id].copy_(torch.from_numpy(np.asarray(value)))
