"""A grid world with images as observations."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from syncline.rl.value_types import Env, EnvConfig, EnvReset, EnvStep, Frame, Tree

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Changes of row and column: up, right, down, left."""
PLAYER, GOAL = (255, 60, 60), (60, 255, 60)


class ImageGrid(Env):
    """A red player walks to a green goal; both start in random cells of a square grid.

    Observations are uint8 images [size * cell, size * cell, 3]. The step to the goal is rewarded
    with 1, every other step with -0.1. Episodes end at the goal or after `max_steps`.

    Configuration: `size` (4), side of the grid in cells; `cell` (2), side of a cell in pixels;
    `max_steps` (20).
    """

    def __init__(self, config: EnvConfig | None = None) -> None:
        config = config or {}
        self.size = int(config.get("size", 4))
        self.cell = int(config.get("cell", 2))
        self.max_steps = int(config.get("max_steps", 20))
        side = self.size * self.cell
        self.observation_space = spaces.Box(0, 255, (side, side, 3), np.uint8)
        self.action_space = spaces.Discrete(len(MOVES))
        self.player = self.goal = (0, 0)
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> EnvReset:
        super().reset(seed=seed)
        cells = self.np_random.choice(self.size**2, 2, replace=False)
        self.player, self.goal = (divmod(int(cell), self.size) for cell in cells)
        self.steps = 0
        return self.render(), {}

    def step(self, action: Tree) -> EnvStep:
        down, right = MOVES[int(action)]
        row, column = self.player
        last = self.size - 1
        self.player = (min(max(row + down, 0), last), min(max(column + right, 0), last))
        self.steps += 1
        at_goal = self.player == self.goal
        ends = self.steps >= self.max_steps and not at_goal
        return self.render(), 1.0 if at_goal else -0.1, at_goal, ends, {}

    def render(self) -> Frame:
        """Return the image."""
        grid = np.zeros((self.size, self.size, 3), np.uint8)
        grid[self.goal] = GOAL
        grid[self.player] = PLAYER
        return grid.repeat(self.cell, 0).repeat(self.cell, 1)
