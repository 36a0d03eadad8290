"""`GuardedSyncVectorEnv`: steps environments sequentially in this process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array, iterate
from numpy.typing import DTypeLike

from syncline.rl.envs.checks import mismatch, reward_problem
from syncline.rl.envs.env_errors import EnvError
from syncline.rl.envs.env_guard import EnvGuard
from syncline.rl.envs.env_state import get_env_state, set_env_state
from syncline.rl.envs.vector_step import FINAL_INFO, FINAL_OBS, PER_ENV, VectorStep
from syncline.rl.value_types import Arrays, Env, EnvReset, EnvStep, Info, Space, Tree

CHECKED_STEPS = 20
"""Number of fully checked steps after the creation of an environment."""


# Without type arguments: it is generic only from gymnasium 1.3 on.
class GuardedSyncVectorEnv(gym.vector.SyncVectorEnv):
    """Steps environments sequentially, and resets ended episodes in the same step."""

    def __init__(self, guards: Sequence[EnvGuard]) -> None:
        self._guards = list(guards)
        check_single_agent(self._guards[0].env)
        try:
            super().__init__(
                [functools.partial(_env_of, guard) for guard in guards],
                autoreset_mode=AutoresetMode.SAME_STEP,
            )
        except (RuntimeError, AssertionError) as error:  # the latter before gymnasium 1.3
            raise EnvError(
                f"All environments of a vector must have the same spaces, but {error}"
            ) from error
        self._batch = batcher(self.single_observation_space)
        self._per_env: list[Info] = [{} for _ in guards]
        self._attach()

    def _attach(self) -> None:
        """Update the environments from the guards, and check their next steps."""
        self.envs = [guard.env for guard in self._guards]
        self._steps: list[Callable[[Tree], EnvStep]] = [guard.step for guard in self._guards]
        self._steps_to_check = CHECKED_STEPS

    @property
    def num_restarts(self) -> int:
        """Number of environments recreated after a failure."""
        return sum(guard.num_restarts for guard in self._guards)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, object] | None = None,
    ) -> tuple[Arrays, Info]:
        """Reset all environments; `seed` is a list, or the first of consecutive seeds."""
        for index, env_seed in enumerate(_seeds(seed, self.num_envs)):
            self._env_obs[index], self._per_env[index] = self._reset_one(index, env_seed, options)
        infos = {PER_ENV: list(self._per_env)} if any(self._per_env) else {}
        return self._batched(), infos

    def _reset_one(
        self, index: int, seed: int | None = None, options: dict[str, object] | None = None
    ) -> EnvReset:
        guard = self._guards[index]
        result = guard.reset(seed, options)
        if guard.env is not self.envs[index]:
            self._attach()
        return result

    def reset_one(self, index: int, seed: int | None = None) -> Tree:
        """Begin an episode in one environment; return its first observation."""
        self._env_obs[index], self._per_env[index] = self._reset_one(index, seed)
        return self._env_obs[index]

    def step_one(self, index: int, action: Tree) -> EnvStep:
        """Step one environment; at the end of its episode the caller resets it."""
        try:
            result = self._steps[index](action)
        except Exception as error:
            result = self._guards[index].recover(error, action, self._env_obs[index])
        self._env_obs[index] = result[0]
        return result

    def step(self, actions: Arrays) -> VectorStep:
        """Step all environments."""
        num_envs, all_obs, steps = self.num_envs, self._env_obs, self._steps
        rewards: list[SupportsFloat] = [0.0] * num_envs
        terminated, truncated = [False] * num_envs, [False] * num_envs
        per_env, has_info = self._per_env, False
        infos: Info = {}
        for index, action in enumerate(iterate(self.action_space, actions)):
            try:
                obs, rewards[index], ended, cut, info = steps[index](action)
            except Exception as error:
                guard = self._guards[index]
                obs, rewards[index], ended, cut, info = guard.recover(error, action, all_obs[index])
            if ended or cut:
                terminated[index], truncated[index] = bool(ended), bool(cut)
                if not infos:
                    infos = {FINAL_OBS: [None] * num_envs, FINAL_INFO: [None] * num_envs}
                infos[FINAL_OBS][index], infos[FINAL_INFO][index] = obs, info
                obs, info = self._reset_one(index)
            all_obs[index], per_env[index] = obs, info
            has_info = has_info or bool(info)
        if self._steps_to_check:
            self._finish_checked_step()
        if has_info:
            infos[PER_ENV] = list(per_env)
        return (
            self._batched(),
            self._as_rewards(rewards),
            np.array(terminated),
            np.array(truncated),
            infos,
        )

    def _finish_checked_step(self) -> None:
        if any(guard.env is not env for guard, env in zip(self._guards, self.envs, strict=True)):
            self._attach()
        self._steps_to_check -= 1
        if not self._steps_to_check:
            self._steps = [env.step for env in self.envs]

    def _batched(self) -> Arrays:
        try:
            return self._batch(self._env_obs)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise EnvError(self._name_culprit(error)) from error

    def _name_culprit(self, error: Exception) -> str:
        for index, obs in enumerate(self._env_obs):
            problem = mismatch(self.single_observation_space, obs)
            if problem:
                return f"Environment at index {index} of its vector: {problem}."
        return f"The observations of a vector environment have different shapes: {error}."

    def _as_rewards(self, rewards: list[SupportsFloat]) -> np.ndarray:
        try:
            array = np.array(rewards, np.float64)
            if array.shape == (self.num_envs,):
                return array
            return array.reshape(self.num_envs)
        except (ValueError, TypeError) as error:
            for index, reward in enumerate(rewards):
                problem = reward_problem(reward)
                if problem:
                    raise EnvError(
                        f"Environment at index {index} of its vector: {problem}."
                    ) from error
            raise

    def get_states(self) -> list[bytes | None]:
        """Return the state of each environment, or None if it cannot be saved."""
        return [get_env_state(env) for env in self.envs]

    def set_states(self, states: Sequence[bytes]) -> None:
        """Restore the states of the environments."""
        for env, state in zip(self.envs, states, strict=True):
            set_env_state(env, state)


def _env_of(guard: EnvGuard) -> Env:
    return guard.env


def batcher(space: Space) -> Callable[[Sequence[Tree]], Arrays]:
    """Return a function that stacks values of a space to new arrays [N, …]."""
    if isinstance(space, spaces.Dict):
        parts = {key: batcher(each) for key, each in space.items()}
        return lambda values: {
            key: part([value[key] for value in values]) for key, part in parts.items()
        }
    if isinstance(space, spaces.Tuple):
        items = [batcher(each) for each in space]
        return lambda values: tuple(
            item([value[i] for value in values]) for i, item in enumerate(items)
        )
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return functools.partial(_stack, dtype=space.dtype, shape=space.shape or ())
    return lambda values: concatenate(space, values, create_empty_array(space, len(values)) or ())


def _stack(values: Sequence[Tree], dtype: DTypeLike, shape: tuple[int, ...]) -> np.ndarray:
    stacked = np.array(values, dtype)
    if stacked.shape[1:] != shape:
        raise ValueError(f"got the shape {stacked.shape[1:]} instead of {shape}")
    return stacked


def _seeds(seed: int | Sequence[int | None] | None, num_envs: int) -> Sequence[int | None]:
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, int):
        return [seed + index for index in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"Got {len(seed)} seeds for {num_envs} environments.")
    return seed


def check_single_agent(env: Env) -> None:
    if getattr(env.unwrapped, "possible_agents", None) is None:
        return
    raise ValueError(
        f"{type(env.unwrapped).__name__} is a multi-agent environment. Set its modules with "
        "`config.multi_agent(policies=..., policy_mapping_fn=...)`."
    )
