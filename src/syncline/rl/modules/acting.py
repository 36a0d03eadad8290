"""`ActingPolicy`: the step from observations to actions, as env runners call it.

Covered: the interface, the choice of an implementation, and the one for modules without framework.
Not covered: `numpy_acting` (default fully connected modules) and `torch/torch_acting` (every other
module with networks).
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np

from syncline.rl.columns.names import Columns

Arrays = Any
"""An array, or a dict or tuple of arrays as deep as the space."""


class ActingPolicy(Protocol):
    """Computes the actions of N environments at once.

    Not thread-safe. Results depend on the weights and the arguments only: randomness comes as
    `noise`, so that an environment's actions do not depend on its neighbours.
    """

    noise_size: int
    """Numbers of noise per row."""
    noise_kind: Literal["uniform", "normal"]
    """Distribution of the noise: U[0, 1) or N(0, 1), both float64."""

    def act(
        self, obs: Arrays, noise: np.ndarray, explore: bool, state: Arrays = None
    ) -> tuple[dict[str, Any], Arrays]:
        """Return the columns of one step and the next state.

        `obs` has the shape [N, ...], `noise` [N, noise_size], `state` [N, ...] (None for modules
        without state). The columns have N rows: `actions` always; with `explore`, also
        `action_logp` and `action_dist_inputs`; and any further column that the module emits.
        """
        ...


class _Acts(Protocol):
    """A module, as far as acting needs it."""

    def unwrapped(self) -> Any: ...


def acting_policy(module: _Acts) -> ActingPolicy:
    """Return the fastest implementation for a module: the one that its class chooses.

    Classes choose by overriding `RLModule.acting_policy`. The policy sees changes of the weights.
    """
    policy: ActingPolicy = module.unwrapped().acting_policy()
    return policy


class ModuleActing:
    """Acting of modules without framework: they get arrays and return actions.

    Such modules draw their own random numbers.
    """

    noise_size = 0
    noise_kind: Literal["uniform", "normal"] = "uniform"

    def __init__(self, module: Any) -> None:
        self._module = module

    def act(
        self, obs: Arrays, noise: np.ndarray, explore: bool, state: Arrays = None
    ) -> tuple[dict[str, Any], Arrays]:
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
                "without framework must return `actions`. Derive it from TorchRLModule to return "
                "`action_dist_inputs` instead."
            )
        return columns, next_state
