"""Tasks that need memory: hidden velocities, delayed repetition."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv

from syncline.rl.value_types import Env, EnvConfig, EnvReset, EnvStep, Options, Space, Tree


class StatelessCartPole(CartPoleEnv):
    """CartPole with observations that lack both velocities. Episodes have no step limit."""

    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__()
        high = np.array([self.x_threshold * 2, self.theta_threshold_radians * 2], np.float32)
        self.observation_space: Space = spaces.Box(-high, high, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> EnvReset:
        obs, info = super().reset(seed=seed, options=options)
        return obs[[0, 2]], info

    def step(self, action: Tree) -> EnvStep:
        result: EnvStep = super().step(action)  # type: ignore[no-untyped-call]
        obs, reward, terminated, truncated, info = result
        return obs[[0, 2]], reward, terminated, truncated, info


class StatelessPendulum(PendulumEnv):
    """Pendulum with observations that lack the angular velocity. Episodes have no step limit.

    Configuration: `g` (10.0), acceleration of gravity.
    """

    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__(g=(config or {}).get("g", 10.0))
        self.observation_space: Space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> EnvReset:
        obs, info = super().reset(seed=seed, options=options)
        return obs[:-1], info

    def step(self, action: Tree) -> EnvStep:
        result: EnvStep = super().step(action)  # type: ignore[no-untyped-call]
        obs, reward, terminated, truncated, info = result
        return obs[:-1], reward, terminated, truncated, info


class RepeatAfterMeEnv(Env):
    """Task: repeat the observation from `repeat_delay` steps ago as action.

    Rewards: 1 for a right bit, -1 for a wrong one; with `continuous`, minus the distance to the two
    numbers. Configuration: `continuous` (False), `repeat_delay` (1), `episode_len` (100).
    """

    def __init__(self, config: EnvConfig | None = None) -> None:
        config = config or {}
        self.continuous = bool(config.get("continuous", False))
        self.observation_space: Space = (
            spaces.Box(-1.0, 1.0, (2,)) if self.continuous else spaces.Discrete(2)
        )
        self.action_space = self.observation_space
        self.delay = int(config.get("repeat_delay", 1))
        self.episode_len = int(config.get("episode_len", 100))
        self.history: list[Tree] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> EnvReset:
        super().reset(seed=seed)
        self.history = [np.zeros(2, np.float32) if self.continuous else 0] * self.delay
        return self._next_obs(), {}

    def step(self, action: Tree) -> EnvStep:
        wanted = self.history[-(1 + self.delay)]
        if self.continuous:
            reward = -float(np.abs(action - wanted).sum())
        else:
            reward = 1.0 if action == wanted else -1.0
        over = len(self.history) > self.episode_len
        return self._next_obs(), reward, over, over, {}

    def _next_obs(self) -> Tree:
        if self.continuous:
            token: object = self.np_random.random(2, np.float32)
        else:
            token = int(self.np_random.integers(2))
        self.history.append(token)
        return token


class RepeatInitialObsEnv(Env):
    """Task: repeat the first observation for `episode_len` steps; 1 if right, -1 if wrong.

    All later observations are 0.
    """

    def __init__(self, episode_len: int | Options | None = 100) -> None:
        if not isinstance(episode_len, int):
            episode_len = int((episode_len or {}).get("episode_len", 100))
        self.observation_space = spaces.Discrete(2)
        self.action_space = spaces.Discrete(2)
        self.episode_len = episode_len
        self.token = 0
        self.num_steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> EnvReset:
        super().reset(seed=seed)
        self.token = int(self.np_random.integers(2))
        self.num_steps = 0
        return self.token, {}

    def step(self, action: Tree) -> EnvStep:
        reward = 1 if action == self.token else -1
        self.num_steps += 1
        over = self.num_steps >= self.episode_len
        return 0, reward, over, over, {}
