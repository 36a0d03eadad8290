"""Environments with the API of gym before 0.26, as gymnasium environments.

Covered: `step` with 4 results, `reset` without infos and without `seed`, `seed()`, and spaces of
the package gym. Not covered: other features of gym.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from syncline.rl.value_types import (
    CheckedSpace,
    Env,
    EnvReset,
    EnvStep,
    Frame,
    Options,
    Space,
    Tree,
)


class OlderGymEnv(Env):
    """Adapts an environment; results of the new API are returned unchanged."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space = as_gymnasium_space(env.observation_space)
        self.action_space = as_gymnasium_space(env.action_space)
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)
        self._reset_takes = reset_arguments(env)
        warnings.warn(
            f"{type(env).__name__} has the API of gym before 0.26. Return (observation, info) from "
            "reset(*, seed=None, options=None) and (observation, reward, terminated, truncated, "
            "info) from step().",
            DeprecationWarning,
            stacklevel=2,
        )

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> EnvReset:
        if seed is not None and "seed" not in self._reset_takes and hasattr(self.env, "seed"):
            self.env.seed(seed)
        given = {"seed": seed, "options": options}
        result = self.env.reset(**{name: given[name] for name in self._reset_takes})
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
            return result
        return result, {}

    def step(self, action: Tree) -> EnvStep:
        result: EnvStep = as_new_step(self.env.step(action))
        return result

    def render(self) -> Frame:
        return self.env.render()

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()

    @property
    def unwrapped(self) -> Any:
        return getattr(self.env, "unwrapped", self.env)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)


def has_older_reset(env: object) -> bool:
    """Return True if an environment needs the adapter because of its type or `reset`."""
    if not isinstance(env, gym.Env):
        return True
    return reset_arguments(env) != ["seed", "options"]


def reset_arguments(env: Env) -> list[str]:
    """Return the arguments among "seed" and "options" that `reset` of an environment accepts."""
    parameters = inspect.signature(env.reset).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return [name for name in ("seed", "options") if takes_all or name in parameters]


def as_new_step(result: object) -> Any:
    """Return the result of a `step` with `done` split into `terminated` and `truncated`."""
    if not isinstance(result, tuple) or len(result) != 4:
        return result
    obs, reward, done, info = result
    truncated = bool(info.get("TimeLimit.truncated", False)) if isinstance(info, dict) else False
    return obs, reward, bool(done) and not truncated, bool(done) and truncated, info


def as_gymnasium_space(space: CheckedSpace) -> Space:
    """Return the gymnasium space for a space of the package gym.

    Raises:
        TypeError: gymnasium has no such space.
    """
    if isinstance(space, spaces.Space):
        return space
    kind = type(space).__name__
    if kind == "Box":
        return spaces.Box(space.low, space.high, space.shape, space.dtype)
    if kind == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.asarray(space.nvec))
    if kind == "MultiBinary":
        return spaces.MultiBinary(space.n)
    if kind == "Tuple":
        return spaces.Tuple([as_gymnasium_space(each) for each in space.spaces])
    if kind == "Dict":
        return spaces.Dict({key: as_gymnasium_space(s) for key, s in space.spaces.items()})
    raise TypeError(f"{space!r} is not a gymnasium space. Use a space of `gymnasium.spaces`.")
