"""`ActingPolicy`: computes actions from observations in env runners.

Covered: the interface, the choice of an implementation, and acting of modules without a framework.
Not covered: `numpy_acting` (default fully connected modules) and `torch/torch_acting` (every other
module with networks).
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np

from syncline.rl.columns.names import Columns
from syncline.rl.value_types import Arrays, Batch, ModuleType


class ActingPolicy(Protocol):
    """Computes the actions of a batch of N environments.

    Not thread-safe. Results depend only on the weights and the arguments: all randomness is passed
    as `noise`, so that the actions of an environment do not depend on the other environments.
    """

    noise_size: int
    """Number of noise values per row."""
    noise_kind: Literal["uniform", "normal"]
    """Distribution of the noise: U[0, 1) or N(0, 1), both float64."""

    def act(
        self, obs: Arrays, noise: np.ndarray, explore: bool, state: Arrays = None
    ) -> tuple[Batch, Arrays]:
        """Return the columns of one step and the next state.

        `obs` has the shape [N, ...], `noise` [N, noise_size], `state` [N, ...] (None for modules
        without state). The columns have N rows: `actions`; with `explore`, also `action_logp` and
        `action_dist_inputs`; and any other column that the module returns.
        """
        ...


class _Acts(Protocol):
    """The part of the module interface that acting needs."""

    def unwrapped(self) -> Any: ...


def acting_policy(module: _Acts) -> ActingPolicy:
    """Return the fastest implementation for a module, chosen by its class.

    Classes choose by overriding `RLModule.acting_policy`. The policy follows weight updates.
    """
    policy: ActingPolicy = module.unwrapped().acting_policy()
    return policy


class ModuleActing:
    """Acting of modules without a framework, which map arrays to actions.

    These modules draw their own random numbers.
    """

    noise_size = 0
    noise_kind: Literal["uniform", "normal"] = "uniform"

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def act(
        self, obs: Arrays, noise: np.ndarray, explore: bool, state: Arrays = None
    ) -> tuple[Batch, Arrays]:
        """Return the columns of one step and the next state. See `ActingPolicy.act`."""
        batch = {Columns.OBS: obs}
        if state is not None:
            batch[Columns.STATE_IN] = state
        forward = self._module.forward_exploration if explore else self._module.forward_inference
        columns = dict(forward(batch))
        next_state = columns.pop(Columns.STATE_OUT, state)
        if Columns.ACTIONS not in columns:
            raise ValueError(
                f"{type(self._module).__name__} returned {sorted(columns) or 'nothing'}: a module "
                "without a framework must return `actions`. Derive it from TorchRLModule to "
                "return `action_dist_inputs` instead."
            )
        return columns, next_state
