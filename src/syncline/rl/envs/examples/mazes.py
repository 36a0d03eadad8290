"""Corridors and grids."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from syncline.rl.value_types import Env, EnvConfig, EnvReset, EnvStep, Info, Tree

ACTION_UP, ACTION_RIGHT, ACTION_DOWN, ACTION_LEFT = range(4)


class SimpleCorridor(Env):
    """Walk to the right end of a corridor: reward 1 at the end, -0.01 for every other step.

    Actions: 0 for left, 1 for right. Configuration: `corridor_length` (10), at most 999.
    """

    def __init__(self, config: EnvConfig | None = None) -> None:
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(0.0, 999.0, (1,), np.float32)
        self.set_corridor_length((config or {}).get("corridor_length", 10))
        self.position = 0.0

    def set_corridor_length(self, length: int) -> None:
        """Set the length of the corridor."""
        if not 0 < length <= 999:
            raise ValueError(f"corridor_length={length} must be between 1 and 999.")
        self.end_pos = length

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> EnvReset:
        super().reset(seed=seed)
        self.position = 0.0
        return self._obs(), {}

    def step(self, action: Tree) -> EnvStep:
        if action not in (0, 1):
            raise ValueError(f"The action {action!r} must be 0 or 1.")
        self.position = max(self.position + (1.0 if action else -1.0), 0.0)
        at_end = self.position >= self.end_pos
        return self._obs(), 1.0 if at_end else -0.01, at_end, False, {}

    def _obs(self) -> Tree:
        return np.array([self.position], np.float32)


class CliffWalkingWallEnv(Env):
    """A grid of 4 rows and 12 columns, whose last row is a wall between start and goal.

    The observation is row * 12 + column; the start is 36, the goal 47. Every step costs 1, and the
    goal is rewarded with 10. Steps into walls have no effect.
    """

    START, GOAL, COLUMNS = 36, 47, 12

    def __init__(self, seed: object = 42) -> None:
        self.observation_space = spaces.Discrete(48)
        self.action_space = spaces.Discrete(4)
        self.position = self.START

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[int, Info]:
        super().reset(seed=seed)
        self.position = self.START
        return self.position, {}

    def step(self, action: Tree) -> EnvStep:
        row, column = divmod(self.position, self.COLUMNS)
        if action == ACTION_UP:
            row = max(row - 1, 0)
        elif action == ACTION_RIGHT:
            column = min(column + 1, self.COLUMNS - 1)
        elif action == ACTION_DOWN:
            row = min(row + 1, 3)
        elif action == ACTION_LEFT:
            column = max(column - 1, 0)
        else:
            raise ValueError(f"The action {action!r} must be 0, 1, 2 or 3.")
        if row < 3 or column in (0, self.COLUMNS - 1):
            self.position = row * self.COLUMNS + column
        at_goal = self.position == self.GOAL
        return self.position, 10 if at_goal else -1, at_goal, False, {}
