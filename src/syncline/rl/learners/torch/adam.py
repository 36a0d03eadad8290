"""`FlatAdam`: Adam (Kingma and Ba 2015, https://arxiv.org/abs/1412.6980) for one long vector.

Torch's optimizers import its compiler on first creation, which takes longer than importing torch
itself, and their overhead exceeds the update of a small network. This class calls the fused kernel
directly. Its state has the layout of `torch.optim.Adam`.
"""

from __future__ import annotations

import torch
from torch import nn

from syncline.rl.value_types import Options


class FlatAdam(torch.optim.Optimizer):
    """Adam for parameters with dense gradients, with the arguments and state of
    `torch.optim.Adam`.
    """

    def __init__(
        self,
        params: list[nn.Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    def add_param_group(self, param_group: Options) -> None:
        """Add parameters with separate options."""
        # The undecorated method, because the decorator imports torch's compiler.
        add = torch.optim.Optimizer.add_param_group
        getattr(add, "__wrapped__", add)(self, param_group)

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient. `closure` must be None."""
        self.update()

    @torch.no_grad()
    def update(self) -> None:
        """Take a step without the hooks and profiler marks that torch adds to `step`."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: nn.Parameter, group: Options) -> None:
        state = self.state[parameter]
        assert parameter.grad is not None
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        torch._fused_adam_(
            [parameter],
            [parameter.grad],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )
