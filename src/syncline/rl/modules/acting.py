"""`ActingPolicy`: the step from observations to actions, as env runners call it.

Covered: the interface. Not covered: its two implementations, `numpy_acting` (default fully connected
modules) and `torch/torch_acting` (every module).
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np

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
