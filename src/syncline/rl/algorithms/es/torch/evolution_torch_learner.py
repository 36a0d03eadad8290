"""The learners of ES and ARS: one optimizer step along an estimated gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.optimizers import DEFAULT_OPTIMIZER
from syncline.rl.learners.torch.torch_learner import TorchLearner
from syncline.rl.learners.torch.train_batch import Batch, TrainBatch, as_tensor
from syncline.rl.value_types import Options

ASCENT = "ascent"
"""Column of the estimated gradient of the return, [P]."""
STEPS = "steps"
"""Number of environment steps behind the estimate."""


class EvolutionTorchLearner(TorchLearner):
    """Minimizes -g theta + l2/2 |theta|^2, whose gradient is -g + l2 theta."""

    def batch_of_rows(self, columns: Any) -> TrainBatch:
        """Return the batch of an estimated gradient."""
        return TrainBatch(
            columns={ASCENT: as_tensor(columns[ASCENT], self.device)}, num_rows=columns[STEPS]
        )

    def before_gradient_based_update(self, *, timesteps: dict[str, int]) -> None:
        """Store the current weights."""
        self._before = {module_id: self._weights(module_id) for module_id in self.module}

    def forward_train(self, batch: dict[str, Batch]) -> Batch:
        """Return no outputs: the loss depends only on the weights."""
        return {module_id: {} for module_id in batch}

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> torch.Tensor:
        """Return -g theta + l2/2 |theta|^2."""
        theta = nn.utils.parameters_to_vector(self.get_parameters(self.module[module_id]))
        loss: torch.Tensor = -torch.dot(batch[ASCENT], theta)
        if config.l2_coeff:
            loss = loss + 0.5 * config.l2_coeff * torch.dot(theta, theta)
        self.metrics.log_value(
            (module_id, "grad_norm"), torch.linalg.vector_norm(batch[ASCENT]), window=1
        )
        return loss

    def after_gradient_based_update(self, *, timesteps: dict[str, int]) -> None:
        """Log the size of the step."""
        for module_id, before in self._before.items():
            after = self._weights(module_id)
            norm = torch.linalg.vector_norm(after)
            ratio = torch.linalg.vector_norm(after - before) / norm.clamp(min=1e-12)
            self.metrics.log_dict(
                {"weights_norm": norm, "update_ratio": ratio}, key=module_id, window=1
            )

    def _weights(self, module_id: str) -> torch.Tensor:
        with torch.no_grad():
            parameters = self.get_parameters(self.module[module_id])
            return nn.utils.parameters_to_vector(parameters).clone()


class ESTorchLearner(EvolutionTorchLearner):
    """ES: Adam."""

    def configure_optimizers_for_module(self, module_id: str, config: AlgorithmConfig) -> None:
        """Create Adam."""
        self.register_adam(
            module_id,
            DEFAULT_OPTIMIZER,
            self.get_parameters(self.module[module_id]),
            config.stepsize,
        )


class ARSTorchLearner(EvolutionTorchLearner):
    """ARS: plain gradient steps."""

    def configure_optimizers_for_module(self, module_id: str, config: AlgorithmConfig) -> None:
        """Create the optimizer."""
        parameters = self.get_parameters(self.module[module_id])
        self.register_optimizer(
            module_id=module_id,
            optimizer=PlainSGD(parameters, lr=config.sgd_stepsize),
            params=parameters,
            lr_or_lr_schedule=config.sgd_stepsize,
        )


class PlainSGD(torch.optim.Optimizer):
    """Plain SGD, theta - lr g, without importing torch's compiler."""

    def __init__(self, params: list[nn.Parameter], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    def add_param_group(self, param_group: Options) -> None:
        """Add parameters with separate options."""
        add = torch.optim.Optimizer.add_param_group
        getattr(add, "__wrapped__", add)(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Take a step. `closure` must be None."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-group["lr"])
