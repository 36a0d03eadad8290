"""Random numbers of environments: separate generators, independent of the number of runners."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np

from syncline.rl.value_types import StateDict

Purpose = Literal["reset", "explore", "random_actions"]
_PURPOSES: tuple[Purpose, ...] = ("reset", "explore", "random_actions")


def seed_or_random(seed: int | None) -> int:
    """Return the configured seed, or a random one."""
    return int.from_bytes(os.urandom(4), "little") if seed is None else seed


def generator(seed: int, env: int, purpose: Purpose) -> np.random.Generator:
    """Return the generator of one environment for one purpose."""
    key = np.random.SeedSequence([seed, _PURPOSES.index(purpose), env])
    return np.random.Generator(np.random.Philox(key))


class EnvNoise:
    """The generators of a runner's environments.

    Args:
        seed: Seed of the algorithm.
        envs: Global indices of the environments.
    """

    def __init__(self, seed: int, envs: range) -> None:
        self._explore = [generator(seed, env, "explore") for env in envs]
        self.random_actions = [generator(seed, env, "random_actions") for env in envs]
        self.reset_seeds = [int(generator(seed, env, "reset").integers(2**31)) for env in envs]
        """Seeds of the first resets."""

    def draw(self, steps: int, size: int, kind: Literal["uniform", "normal"]) -> np.ndarray:
        """Return noise of the shape [steps, N, size]."""
        if not size:
            return np.zeros((steps, len(self._explore), 0))
        if kind == "uniform":
            drawn = [each.random((steps, size)) for each in self._explore]
        else:
            drawn = [each.standard_normal((steps, size)) for each in self._explore]
        return np.stack(drawn, axis=1)

    def get_state(self) -> StateDict:
        """Return the states of all generators."""
        return {
            "explore": [each.bit_generator.state for each in self._explore],
            "random_actions": [each.bit_generator.state for each in self.random_actions],
        }

    def set_state(self, state: StateDict) -> None:
        """Set the states of all generators."""
        for made, saved in zip(self._explore, state["explore"], strict=True):
            made.bit_generator.state = saved
        for made, saved in zip(self.random_actions, state["random_actions"], strict=True):
            made.bit_generator.state = saved
