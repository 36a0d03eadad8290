"""Tasks with special actions: masked, correlated, nested."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from syncline.rl.envs.examples.random_env import RandomEnv
from syncline.rl.value_types import Env, EnvConfig, EnvReset, EnvStep, Space, Tree


class ActionMaskEnv(RandomEnv):
    """`RandomEnv` with a mask of valid actions; an invalid one raises ValueError.

    Observations: `action_mask` and `observations`. At least one action is valid.
    """

    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__(config)
        if not isinstance(self.action_space, spaces.Discrete):
            raise ValueError(f"action_space={self.action_space} must be Discrete.")
        self.observation_space = spaces.Dict(
            {
                "action_mask": spaces.Box(0.0, 1.0, (int(self.action_space.n),)),
                "observations": self.observation_space,
            }
        )
        self.valid_actions: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> EnvReset:
        obs, info = super().reset(seed=seed, options=options)
        return self._masked(obs), info

    def step(self, action: Tree) -> EnvStep:
        if not self.valid_actions[action]:
            raise ValueError(
                f"The action {action} is not valid; the mask is {self.valid_actions.tolist()}."
            )
        obs, reward, terminated, truncated, info = super().step(action)
        return self._masked(obs), reward, terminated, truncated, info

    def _masked(self, obs: Tree) -> Tree:
        mask = np.round(obs["action_mask"])
        if not mask.any():
            mask[int(self.np_random.integers(len(mask)))] = 1.0
        self.valid_actions = mask
        return {**obs, "action_mask": mask}


class CorrelatedActionsEnv(Env):
    """One step: choose a1 in {0, 1, 2} for the observation, and a2 in [-2, 2] for both.

    The reward is -|1 - (obs + a1)| - |obs + a1 + a2|, so that the best a2 depends on the sampled
    a1.
    """

    def __init__(self, config: EnvConfig | None = None) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Tuple(
            [spaces.Discrete(3), spaces.Box(-2.0, 2.0, (1,), np.float32)]
        )
        self.obs = np.zeros(1, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> EnvReset:
        super().reset(seed=seed)
        self.obs = self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)
        return self.obs, {}

    def step(self, action: Tree) -> EnvStep:
        first, second = action
        total = float(self.obs[0]) + float(first)
        reward = -abs(1.0 - total) - abs(total + float(second[0]))
        return self.obs, reward, True, False, {}


class NestedSpaceRepeatAfterMeEnv(Env):
    """Task: repeat the observation as action, in any nested space of Discrete and Box.

    Rewards: 1 for every equal Discrete, minus the distance for every Box. Configuration: `space`
    (Tuple of a Discrete and a Dict with a Box), `episode_len` (100).
    """

    def __init__(self, config: EnvConfig | None = None) -> None:
        config = config or {}
        default = spaces.Tuple(
            [spaces.Discrete(2), spaces.Dict({"a": spaces.Box(-1.0, 1.0, (2,))})]
        )
        self.observation_space = config.get("space", default)
        self.action_space = self.observation_space
        self.episode_len = int(config.get("episode_len", 100))
        self.steps = 0
        self.current_obs: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> EnvReset:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        self.current_obs = self.observation_space.sample()
        return self.current_obs, {}

    def step(self, action: Tree) -> EnvStep:
        self.steps += 1
        reward = _match(self.action_space, action, self.current_obs)
        self.current_obs = self.observation_space.sample()
        return self.current_obs, reward, False, self.steps >= self.episode_len, {}


def _match(space: Space, action: Tree, wanted: Tree) -> float:
    if isinstance(space, spaces.Dict):
        return sum(_match(each, action[key], wanted[key]) for key, each in space.items())
    if isinstance(space, spaces.Tuple):
        return sum(_match(each, action[i], wanted[i]) for i, each in enumerate(space))
    if isinstance(space, spaces.Discrete):
        return float(action == wanted)
    return -float(np.abs(np.asarray(action) - wanted).sum())
