"""`ActorCriticLearner`: common base of learners with a policy and a value function.

Covered: coefficients of the entropy bonus, log-probabilities and values of whole fragments with the
current weights. Not covered: the losses (`algorithms/`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.names import Columns
from syncline.rl.columns.sequences import sequences
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.schedule import Schedule
from syncline.rl.learners.torch.torch_learner import ROWS_AT_ONCE, TorchLearner, initial_state
from syncline.rl.learners.torch.train_batch import Batch, TrainBatch, as_tensor, as_tensors
from syncline.rl.metrics.names import NUM_ENV_STEPS_SAMPLED_LIFETIME
from syncline.rl.modules.rl_module import RLModule
from syncline.rl.value_types import ModuleType

LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY = "curr_entropy_coeff"
POLICY_LOSS_KEY = "policy_loss"
VF_LOSS_KEY = "vf_loss"
ENTROPY_KEY = "entropy"


class ActorCriticLearner(TorchLearner):
    """Base of learners whose configuration has `entropy_coeff`, a number or a schedule."""

    def build(self) -> None:
        """Create modules and optimizers."""
        super().build()
        self.entropy_coeffs: dict[str, float] = {}

    def before_gradient_based_update(self, *, timesteps: dict[str, int]) -> None:
        """Set the entropy coefficients of this update."""
        super().before_gradient_based_update(timesteps=timesteps)
        step = int(timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0))
        for module_id in self.module:
            config: AlgorithmConfig = self.config.get_config_for_module(module_id)
            value = Schedule(config.entropy_coeff, "entropy_coeff").value(step)
            self.entropy_coeffs[module_id] = value
            self.metrics.log_value(
                (module_id, LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY), value, window=1
            )

    def policy(self, module_id: str, fwd_out: Batch) -> Any:
        """Return the action distribution of a training pass."""
        module: ModuleType = self.module[module_id]
        return module.get_train_action_dist_cls().from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])

    def log_probabilities(self, module: RLModule, fragment: Fragment) -> np.ndarray:
        """Return log pi(a_t | s_t) of a module, [T, N]; 0 for padding."""
        columns = {
            Columns.OBS: fragment.step_columns()[Columns.OBS],
            Columns.ACTIONS: fragment.columns[Columns.ACTIONS],
        }
        if module.is_stateful():
            pieces = sequences(fragment)
            batch = as_tensors(
                {name: pieces.column(column) for name, column in columns.items()}, self.device
            )
            states = {Columns.STATE_IN: pieces.states(initial_state(module))}
            batch.update(as_tensors(states, self.device))
            batch[Columns.LOSS_MASK] = as_tensor(pieces.mask, self.device)
            return pieces.scatter(self._log_probabilities(module, batch))
        rows = self._log_probabilities(module, as_tensors(fragment.rows(columns), self.device))
        if fragment.valid is None:
            return rows.reshape(fragment.rewards.shape)
        found: np.ndarray = np.zeros(fragment.rewards.shape, np.float32)
        found[fragment.valid] = rows
        return found

    def _log_probabilities(self, module: RLModule, columns: Batch) -> np.ndarray:
        batch = TrainBatch(columns=columns, num_rows=0)
        parts = []
        with torch.no_grad():
            for start in range(0, batch.size, ROWS_AT_ONCE):
                piece = batch.select(slice(start, start + ROWS_AT_ONCE))
                parts.append(self.policy_logp(module, piece))
        found: np.ndarray = torch.cat(parts).float().cpu().numpy()
        return found

    def log_ratios(self, module: RLModule, fragment: Fragment) -> np.ndarray:
        """Return log pi(a_t | s_t) - log mu(a_t | s_t), [T, N]; mu is the sampling policy."""
        ratios = self.log_probabilities(module, fragment) - fragment.columns[Columns.ACTION_LOGP]
        return ratios if fragment.valid is None else np.where(fragment.valid, ratios, 0.0)

    def policy_logp(self, module: RLModule, batch: Batch) -> torch.Tensor:
        """Return log pi(a | s) of the actions of a batch, [B] or [S, L]."""
        inputs = module.forward_exploration(batch)[Columns.ACTION_DIST_INPUTS]
        policy = module.get_exploration_action_dist_cls().from_logits(inputs)
        logp: torch.Tensor = policy.logp(batch[Columns.ACTIONS])
        return logp
