"""The loss of MARWIL: weighted cloning, and a value function for the weights."""

from __future__ import annotations

import torch

from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.torch_learner import TorchLearner
from syncline.rl.learners.torch.train_batch import Batch
from syncline.rl.offline.returns_to_go import BOOTSTRAP_DISCOUNTS, LAST_OBS
from syncline.rl.value_types import ModuleType, Selection


class MARWILTorchLearner(TorchLearner):
    """Maximizes E[exp(beta A / c) log pi(a | s)] with c^2 the moving average of A^2; algorithm 1 of
    the paper.
    """

    def build(self) -> None:
        """Create modules and optimizers."""
        self.square_norms: dict[str, torch.Tensor] = {}
        super().build()

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return the sum of the policy loss and the value loss."""
        module: ModuleType = self.module[module_id]
        policy = module.get_train_action_dist_cls().from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        logp = policy.logp(batch[Columns.ACTIONS])
        if config.beta:
            values = module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS))
            advantages = self._returns(module, batch) - values
            vf_loss = 0.5 * advantages.square().mean()
            weights = self._weights(module_id, config, advantages.detach())
        else:
            vf_loss = torch.zeros((), device=self.device)
            weights = torch.ones_like(logp)
        policy_loss = -(weights * logp).mean()
        if config.bc_logstd_coeff and hasattr(policy, "log_std"):
            policy_loss = policy_loss - config.bc_logstd_coeff * policy.log_std.sum(-1).mean()
        self.metrics.log_dict(
            {"policy_loss": policy_loss, "vf_loss": vf_loss, "mean_weight": weights.mean()},
            key=module_id,
            window=1,
        )
        loss: torch.Tensor = policy_loss + config.vf_coeff * vf_loss
        return loss

    @torch.no_grad()
    def _returns(self, module: ModuleType, batch: Batch) -> torch.Tensor:
        """Return the recorded returns, bootstrapped with the values of last observations, [B]."""
        returns: torch.Tensor = batch[Columns.RETURNS_TO_GO]
        discounts = batch.get(BOOTSTRAP_DISCOUNTS)
        if discounts is None or not discounts.any():
            return returns
        last = module.compute_values({Columns.OBS: batch[LAST_OBS]})
        completed: torch.Tensor = returns + discounts * last
        return completed

    def _weights(
        self, module_id: str, config: AlgorithmConfig, advantages: torch.Tensor
    ) -> torch.Tensor:
        """Update c with the batch; return exp(beta A / c), [B]."""
        square = self.square_norms.get(module_id)
        if square is None:
            square = torch.tensor(
                float(config.moving_average_sqd_adv_norm_start), device=self.device
            )
        rate = config.moving_average_sqd_adv_norm_update_rate
        square = self.square_norms[module_id] = square + rate * (
            advantages.square().mean() - square
        )
        return torch.exp(config.beta * advantages / (square.sqrt() + 1e-8))

    def get_state(
        self, components: Selection = None, *, not_components: Selection = None, **kwargs: object
    ) -> StateDict:
        """Return modules, optimizers, counters and moving averages."""
        norms = {module_id: float(each) for module_id, each in self.square_norms.items()}
        return {
            **super().get_state(components, not_components=not_components, **kwargs),
            "square_norms": norms,
        }

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        super().set_state(state)
        for module_id, value in state.get("square_norms", {}).items():
            self.square_norms[module_id] = torch.tensor(value, device=self.device)
