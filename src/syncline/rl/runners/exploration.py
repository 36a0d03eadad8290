"""Exploration of older releases: `exploration_config={"type": …}`.

Covered: Gaussian and Ornstein-Uhlenbeck noise on actions, uniform first steps. The other types are
built into algorithms and are converted to their options (`config/exploration_options`).
"""

from __future__ import annotations

import math
from typing import Literal

import gymnasium as gym
import numpy as np

from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import first_leaf
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.exploration_options import exploration_type
from syncline.rl.config.schedule import Schedule
from syncline.rl.modules.acting import ActingPolicy
from syncline.rl.value_types import Batch, ModuleType, Options, StateDict, Tree


def exploring(module: ModuleType, config: AlgorithmConfig) -> ActingPolicy:
    """Return the acting policy of a module with the configured exploration.

    Raises:
        ValueError: Noise is configured for actions other than Box.
    """
    acting: ActingPolicy
    if config.torch_compile_worker:
        acting = module.unwrapped().compiled_acting_policy(
            backend=config.torch_compile_worker_dynamo_backend,
            mode=config.torch_compile_worker_dynamo_mode,
        )
    else:
        acting = module.acting_policy()
    given = config.exploration_config or {}
    kind = exploration_type(given)
    if kind not in ("GaussianNoise", "OrnsteinUhlenbeckNoise"):
        return acting
    if not isinstance(module.action_space, gym.spaces.Box):
        raise ValueError(
            f"`exploration_config={{'type': {kind!r}}}` needs Box actions, not "
            f"{module.action_space}. Use 'EpsilonGreedy' or 'StochasticSampling' for them."
        )
    size = int(np.prod(module.action_space.shape))
    return NoiseOnActions(acting, given, size, correlated=kind == "OrnsteinUhlenbeckNoise")


class NoiseOnActions:
    """Adds noise to greedy actions in [-1, 1].

    Args:
        acting: Computes the greedy actions.
        config: Options of the exploration: `stddev`, or `ou_theta`, `ou_sigma` and `ou_base_scale`;
            `initial_scale`, `final_scale`, `scale_timesteps`, `random_timesteps`.
        size: Number of elements of an action.
        correlated: Use an Ornstein-Uhlenbeck process (Uhlenbeck and Ornstein 1930) per
            environment, which starts at 0.
    """

    noise_kind: Literal["uniform", "normal"] = "normal"

    def __init__(
        self, acting: ActingPolicy, config: Options, size: int, *, correlated: bool
    ) -> None:
        self._acting = acting
        self._correlated = correlated
        self._stddev = float(config.get("stddev", 0.1))
        self._theta = float(config.get("ou_theta", 0.15))
        self._sigma = float(config.get("ou_sigma", 0.2))
        self._base = float(config.get("ou_base_scale", 0.1))
        first, last = config.get("initial_scale", 1.0), config.get("final_scale", 1.0)
        steps = int(config.get("scale_timesteps", 10_000))
        self._scale = Schedule([[0, first], [max(steps, 1), last]], "scale")
        self._random_steps = int(config.get("random_timesteps", 1000))
        self._size = self.noise_size = size
        self._process: np.ndarray | None = None
        self._step = 0

    def set_step(self, step: int) -> None:
        """Set the scale of the noise according to the number of sampled environment steps."""
        self._step = step

    def act(
        self, obs: Tree, noise: np.ndarray, explore: bool, state: Tree = None
    ) -> tuple[Batch, Tree]:
        """Return actions with noise while exploring."""
        count = len(first_leaf(obs))
        silent = np.zeros((count, self._acting.noise_size))
        columns, next_state = self._acting.act(obs, silent, False, state)
        if not explore:
            return columns, next_state
        best = np.asarray(columns[Columns.ACTIONS], np.float32)
        if self._step < self._random_steps:
            random = np.vectorize(_uniform)(noise).reshape(best.shape)
            columns[Columns.ACTIONS] = random.astype(np.float32)
            return columns, next_state
        scale = self._scale.value(self._step)
        if self._correlated:
            if self._process is None or len(self._process) != count:
                self._process = np.zeros((count, self._size))
            self._process = self._process * (1.0 - self._theta) + self._sigma * noise
            added = scale * self._base * self._process
        else:
            added = scale * self._stddev * noise
        noisy = np.clip(best + added.reshape(best.shape), -1.0, 1.0)
        columns[Columns.ACTIONS] = noisy.astype(np.float32)
        return columns, next_state

    def get_state(self) -> StateDict:
        """Return the state of the process."""
        return {"process": self._process, "step": self._step}

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        self._process, self._step = state["process"], state["step"]


def _uniform(number: float) -> float:
    """Convert N(0, 1) samples to U[-1, 1] by the cumulative distribution function."""
    return math.erf(number / math.sqrt(2.0))
