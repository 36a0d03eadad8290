"""`RandomEnv`: random observations and rewards from any spaces."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
from gymnasium import spaces

from syncline.rl.envs.multi_agent_env import make_multi_agent
from syncline.rl.value_types import Env, EnvReset, EnvStep, Options, Tree


class RandomEnv(Env):
    """Returns random samples of its spaces.

    Configuration: `observation_space`, `action_space` (both Discrete(2)), `reward_space` (Box from
    -1 to 1), `p_terminated` (0.1) per step, `max_episode_len` (None), `check_action_bounds`
    (False), `static_samples` (False: one sample for all steps).
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        config = config or {}
        self.action_space = config.get("action_space", spaces.Discrete(2))
        self.observation_space = config.get("observation_space", spaces.Discrete(2))
        self.reward_space = config.get("reward_space", spaces.Box(-1.0, 1.0, (), np.float32))
        self.static_samples = config.get("static_samples", False)
        self.p_terminated = config.get("p_terminated", config.get("p_done", 0.1))
        self.max_episode_len = config.get("max_episode_len")
        self.check_action_bounds = config.get("check_action_bounds", False)
        self.steps = 0
        if self.static_samples:
            self.observation_sample = self.observation_space.sample()
            self.reward_sample = self.reward_space.sample()

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> EnvReset:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
            self.reward_space.seed(seed)
        self.steps = 0
        return self._obs(), {}

    def step(self, action: Tree) -> EnvStep:
        if self.check_action_bounds and not self.action_space.contains(action):
            raise ValueError(f"The action {action!r} is not in {self.action_space}.")
        self.steps += 1
        truncated = self.steps >= (self.max_episode_len or math.inf)
        terminated = not truncated and bool(self.np_random.random() < self.p_terminated)
        if self.static_samples:
            reward = copy.deepcopy(self.reward_sample)
        else:
            reward = self.reward_space.sample()
        return self._obs(), reward, terminated, truncated, {}

    def _obs(self) -> Tree:
        if self.static_samples:
            return copy.deepcopy(self.observation_sample)
        return self.observation_space.sample()


RandomMultiAgentEnv = make_multi_agent(RandomEnv)


class RandomLargeObsSpaceEnv(RandomEnv):
    """`RandomEnv` with observations of 5000 numbers."""

    def __init__(self, config: Options | None = None) -> None:
        space = spaces.Box(-1.0, 1.0, (5000,))
        super().__init__({**(config or {}), "observation_space": space})


class RandomLargeObsSpaceEnvContActions(RandomEnv):
    """`RandomEnv` with observations of 5000 numbers and actions of 5."""

    def __init__(self, config: Options | None = None) -> None:
        large = {
            "observation_space": spaces.Box(-1.0, 1.0, (5000,)),
            "action_space": spaces.Box(-1.0, 1.0, (5,)),
        }
        super().__init__({**(config or {}), **large})
