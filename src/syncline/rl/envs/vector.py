"""Vectors of environments for one agent each: one after the other, in processes, or native.

Covered: the vectors that env runners step, with ended episodes reset in the same step, errors that
name the environment, restarts, and exact states. Not covered: multi-agent environments
(`multi_agent_vector`).

All vectors follow gymnasium's `VectorEnv`, with these differences, which save time:

* `step` returns new arrays in every call, so that the caller may keep them.
* `infos` has only `final_obs` and `final_info` (lists by environment; None where the episode goes
  on), and `per_env`, the list of the environments' info dicts. They are missing if there is nothing
  to say; see `infos_per_env`.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from syncline.rl.envs.checks import mismatch, reward_problem
from syncline.rl.envs.env_context import EnvContext
from syncline.rl.envs.env_errors import EnvError
from syncline.rl.envs.env_guard import EnvGuard, StepResult
from syncline.rl.envs.env_state import get_env_state, set_env_state
from syncline.rl.envs.registry import EnvMaker, resolve_env

CHECKED_STEPS = 20
"""Steps with full checks, from the creation of an environment on."""
FINAL_OBS, FINAL_INFO, PER_ENV, RESET_ONLY = "final_obs", "final_info", "per_env", "reset_only"
"""Keys of `infos`. `reset_only` is a mask of the environments whose step only began an episode and
ignored the action; only native vectors with `AutoresetMode.NEXT_STEP` have it."""

Arrays = Any
"""An array, or a dict or tuple of arrays as deep as the space."""
VectorStep = tuple[Arrays, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class VectorOptions(Protocol):
    """The options of a configuration that vectors depend on."""

    env: Any
    env_config: Any
    seed: int | None
    gym_env_vectorize_mode: str
    restart_failed_sub_environments: bool
    disable_env_checking: bool
    render_env: bool


def make_vector_env(
    config: VectorOptions,
    *,
    num_envs: int,
    worker_index: int = 0,
    num_workers: int | None = None,
    first_env: int = 0,
    recreated_worker: bool = False,
) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Create the environments of an env runner.

    Args:
        config: Options of the environment and of the vector.
        num_envs: Number of environments.
        worker_index: Index of the env runner.
        num_workers: Number of env runners.
        first_env: Index of the first environment among all environments of the run.
        recreated_worker: Whether the env runner replaces one that failed.

    Raises:
        ValueError: Unknown environment or mode.
        EnvError: An environment could not be created.
    """
    mode = config.gym_env_vectorize_mode
    mode = getattr(mode, "value", mode)  # gymnasium.VectorizeMode
    maker = resolve_env(config.env, render_mode="rgb_array" if config.render_env else None)
    if maker.kind == "envpool":
        mode = "vector_entry_point"
    context = EnvContext(
        config.env_config or {},
        worker_index=worker_index,
        num_workers=num_workers,
        remote=mode == "async",
        recreated_worker=recreated_worker,
    )
    if mode == "vector_entry_point":
        seed = None if config.seed is None else config.seed + first_env
        return NativeVectorEnv(maker.make_vector(context, num_envs, seed), maker.name)
    guards = [
        functools.partial(
            _make_guard,
            maker,
            context=context.copy_with_overrides(vector_index=index),
            index=first_env + index,
            restart=config.restart_failed_sub_environments,
            check=not config.disable_env_checking,
        )
        for index in range(num_envs)
    ]
    if mode == "sync":
        return GuardedSyncVectorEnv([guard() for guard in guards])
    if mode == "async":
        return make_async(guards)
    raise ValueError(
        f"env_runners(gym_env_vectorize_mode={mode!r}) must be 'sync', 'async' or "
        "'vector_entry_point'."
    )


def _make_guard(maker: EnvMaker, **arguments: Any) -> EnvGuard:
    return EnvGuard(maker.make, name=maker.name, **arguments)


# ---- one after the other ----


class GuardedSyncVectorEnv(gym.vector.SyncVectorEnv[Any, Any]):
    """Steps environments one after the other, and resets those that ended in the same step."""

    def __init__(self, guards: Sequence[EnvGuard]) -> None:
        self._guards = list(guards)
        _check_single_agent(self._guards[0].env)
        try:
            super().__init__(
                [functools.partial(_env_of, guard) for guard in guards],
                autoreset_mode=AutoresetMode.SAME_STEP,
            )
        except RuntimeError as error:
            raise EnvError(
                f"All environments of a vector need the same spaces, but {error}"
            ) from error
        self._batch = batcher(self.single_observation_space)
        self._per_env: list[dict[str, Any]] = [{} for _ in guards]
        self._attach()

    def _attach(self) -> None:
        """Take the environments from the guards, and check their next steps."""
        self.envs = [guard.env for guard in self._guards]
        self._steps: list[Callable[[Any], StepResult]] = [guard.step for guard in self._guards]
        self._steps_to_check = CHECKED_STEPS

    @property
    def num_restarts(self) -> int:
        """Number of environments that were created again after a failure."""
        return sum(guard.num_restarts for guard in self._guards)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Arrays, dict[str, Any]]:
        """Reset all environments; `seed` is one for each, or the first of a sequence."""
        for index, env_seed in enumerate(_seeds(seed, self.num_envs)):
            self._env_obs[index], self._per_env[index] = self._reset_one(index, env_seed, options)
        infos = {PER_ENV: list(self._per_env)} if any(self._per_env) else {}
        return self._batched(), infos

    def _reset_one(
        self, index: int, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        guard = self._guards[index]
        result = guard.reset(seed, options)
        if guard.env is not self.envs[index]:
            self._attach()
        return result

    def step(self, actions: Arrays) -> VectorStep:
        """Step all environments."""
        num_envs, all_obs, steps = self.num_envs, self._env_obs, self._steps
        rewards: list[Any] = [0.0] * num_envs
        terminated, truncated = [False] * num_envs, [False] * num_envs
        per_env, has_info = self._per_env, False
        infos: dict[str, Any] = {}
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
        return f"The observations of a vector of environments do not fit together: {error}."

    def _as_rewards(self, rewards: list[Any]) -> np.ndarray:
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
        """Return the state of each environment, or None where it cannot be saved."""
        return [get_env_state(env) for env in self.envs]

    def set_states(self, states: Sequence[bytes]) -> None:
        """Put the environments into the given states."""
        for env, state in zip(self.envs, states, strict=True):
            set_env_state(env, state)


def _env_of(guard: EnvGuard) -> gym.Env[Any, Any]:
    return guard.env


def batcher(space: spaces.Space[Any]) -> Callable[[Sequence[Any]], Arrays]:
    """Return the function that stacks a list of values of a space to new arrays [N, …]."""
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


def _stack(values: Sequence[Any], dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    stacked = np.array(values, dtype)
    if stacked.shape[1:] != shape:
        raise ValueError(f"got the shape {stacked.shape[1:]} instead of {shape}")
    return stacked


# ---- in processes ----


class GuardedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """The environment of a guard, as one environment: in the process of an asynchronous vector."""

    def __init__(self, guard: EnvGuard) -> None:
        super().__init__(guard.env)
        self._guard = guard
        self._last_obs: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._last_obs, info = self._guard.reset(seed, options)
        self.env = self._guard.env
        return self._last_obs, info

    def step(self, action: Any) -> StepResult:
        try:
            result = self._guard.step(action)
        except Exception as error:
            result = self._guard.recover(error, action, self._last_obs)
        self.env = self._guard.env
        self._last_obs = result[0]
        return result

    @property
    def num_restarts(self) -> int:
        """Number of times that the environment was created again."""
        return self._guard.num_restarts

    def saved_state(self) -> bytes | None:
        """Return the state of the environment."""
        return get_env_state(self.env)

    def restore_state(self, states: Sequence[bytes], first_index: int) -> None:
        """Put the environment into its state among those of the vector."""
        set_env_state(self.env, states[self._guard.index - first_index])


class GuardedAsyncVectorEnv(gym.vector.AsyncVectorEnv[Any, Any]):
    """Steps each environment in a process of its own; for steps that take longer than 0.3 ms."""

    def __init__(
        self, guards: Sequence[Callable[[], EnvGuard]], first_index: int, **options: Any
    ) -> None:
        self._first_index = first_index
        owner = os.getpid()
        super().__init__(
            [functools.partial(_in_process, guard, owner) for guard in guards],
            autoreset_mode=AutoresetMode.SAME_STEP,
            **options,
        )

    @property
    def num_restarts(self) -> int:
        """Number of environments that were created again after a failure."""
        return sum(self.get_attr("num_restarts"))

    def get_states(self) -> list[bytes | None]:
        """Return the state of each environment, or None where it cannot be saved."""
        return list(self.call("saved_state"))

    def set_states(self, states: Sequence[bytes]) -> None:
        """Put the environments into the given states."""
        self.call("restore_state", list(states), self._first_index)


def make_async(guards: Sequence[Callable[[], EnvGuard]]) -> GuardedAsyncVectorEnv:
    """Return the vector with environments in processes."""
    dummy = guards[0]()
    _check_single_agent(dummy.env)
    plain = _has_arrays_only(dummy.env.observation_space)
    dummy.env.close()
    return GuardedAsyncVectorEnv(guards, dummy.index, shared_memory=plain)


def _in_process(make_guard: Callable[[], EnvGuard], owner: int) -> gym.Env[Any, Any]:
    if os.getpid() != owner:
        threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    return GuardedEnv(make_guard())


def _exit_with_parent(parent: int) -> None:
    """End this process when its parent has died: the pipes stay open in its siblings."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _has_arrays_only(space: spaces.Space[Any]) -> bool:
    if isinstance(space, spaces.Dict):
        return all(_has_arrays_only(each) for each in space.values())
    if isinstance(space, spaces.Tuple):
        return all(_has_arrays_only(each) for each in space)
    return isinstance(
        space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    )


# ---- native ----


class NativeVectorEnv(gym.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """A vector whose class steps all environments at once, with any mode of autoreset.

    Vectors that reset in the step after the end (`AutoresetMode.NEXT_STEP`, gymnasium's default and
    envpool) cannot do it sooner: their last observations appear in `final_obs` as usual, but also
    as the observation, and `infos["reset_only"]` masks the step that follows.
    """

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any], name: str) -> None:
        super().__init__(env)
        self._name = name
        mode = (env.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self.autoreset_mode = mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
        self._resets_next = np.zeros(env.num_envs, bool)
        self._steps_to_check = CHECKED_STEPS
        self._last: Any = None
        self.num_restarts = 0

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Arrays, dict[str, Any]]:
        """Reset all environments; of several seeds, the first counts for all."""
        if seed is not None and not isinstance(seed, int):
            seed = seed[0]
        self._resets_next[:] = False
        obs, infos = self.env.reset(seed=seed, options=options)
        self._check(obs, np.zeros(self.num_envs))
        return self._fresh(obs), infos

    def step(self, actions: Arrays) -> VectorStep:
        """Step all environments."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        if self._steps_to_check:
            self._check(obs, rewards)
            self._steps_to_check -= 1
        done = np.logical_or(terminated, truncated)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            infos = self._mark_next_step(obs, done, infos)
        elif self.autoreset_mode is AutoresetMode.DISABLED and done.any():
            infos = {**infos, FINAL_OBS: _split(obs, done)}
            obs, _ = self.env.reset(options={"reset_mask": done})
        return (
            self._fresh(obs),
            np.array(rewards, np.float64),
            np.array(terminated),
            np.array(truncated),
            infos,
        )

    def _mark_next_step(
        self, obs: Arrays, done: np.ndarray, infos: dict[str, Any]
    ) -> dict[str, Any]:
        if not (done.any() or self._resets_next.any()):
            return infos
        marked = dict(infos)
        if self._resets_next.any():
            marked[RESET_ONLY] = self._resets_next
        if done.any():
            marked[FINAL_OBS] = _split(obs, done)
        self._resets_next = done
        return marked

    def _check(self, obs: Arrays, rewards: Any) -> None:
        for index, one in enumerate(_split(obs, np.ones(self.num_envs, bool))):
            problem = mismatch(self.single_observation_space, one)
            if problem:
                raise EnvError(f"Environment {index} of the vector {self._name}: {problem}.")
        rewards = np.asarray(rewards)
        if rewards.shape != (self.num_envs,) or not np.isfinite(rewards).all():
            raise EnvError(
                f"The vector {self._name} returned the rewards {rewards}, but must return "
                f"{self.num_envs} finite numbers."
            )

    def _fresh(self, obs: Arrays) -> Arrays:
        """Return observations that later steps do not change."""
        if isinstance(obs, dict):
            return {key: np.array(value) for key, value in obs.items()}
        if isinstance(obs, tuple):
            return tuple(np.array(value) for value in obs)
        reused = obs is self._last or obs.base is not None
        self._last = obs
        return np.array(obs) if reused else obs

    def get_states(self) -> list[bytes | None]:
        """Return the state of the whole vector as the first of the list."""
        state = get_env_state(self.env)
        if state is None:
            return [None] * self.num_envs
        return [state, *[b""] * (self.num_envs - 1)]

    def set_states(self, states: Sequence[bytes]) -> None:
        """Put the vector into the state of `get_states`."""
        if not states[0] or any(states[1:]):
            raise ValueError(
                f"The vector {self._name} can only be restored as a whole: use as many "
                "environments and env runners as the saved run."
            )
        set_env_state(self.env, states[0])


def _split(batch: Arrays, where: np.ndarray) -> list[Any]:
    """Return the values of the marked environments by index, and None for the others."""
    chosen: list[Any] = [None] * len(where)
    for index in np.flatnonzero(where):
        chosen[index] = _one_of(batch, int(index))
    return chosen


def _one_of(batch: Arrays, index: int) -> Any:
    if isinstance(batch, dict):
        return {key: _one_of(value, index) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_one_of(value, index) for value in batch)
    return np.array(batch[index])


# ---- common ----


def get_env_states(env: Any) -> list[bytes | None]:
    """Return the state of each environment of a vector; None where it cannot be saved."""
    states: list[bytes | None] = _own_vector(env).get_states()
    return states


def set_env_states(env: Any, states: Sequence[bytes | None]) -> None:
    """Put the environments of a vector into the states of `get_env_states`.

    Raises:
        ValueError: The number or classes of environments differ, or a state is None.
    """
    vector = _own_vector(env)
    if len(states) != vector.num_envs or any(state is None for state in states):
        missing = sum(state is None for state in states)
        raise ValueError(
            f"Cannot restore {vector.num_envs} environments from {len(states)} states, of which "
            f"{missing} could not be saved."
        )
    vector.set_states(states)


def infos_per_env(infos: dict[str, Any], num_envs: int) -> list[dict[str, Any]]:
    """Return the info dict of each environment, for `infos` of any vector."""
    if PER_ENV in infos:
        listed: list[dict[str, Any]] = infos[PER_ENV]
        return listed
    split: list[dict[str, Any]] = [{} for _ in range(num_envs)]
    for key, values in infos.items():
        mask = infos.get(f"_{key}")
        if key.startswith("_") or key in (FINAL_OBS, FINAL_INFO, RESET_ONLY) or mask is None:
            continue
        for index in np.flatnonzero(mask):
            value = values[index] if not isinstance(values, dict) else None
            split[index][key] = infos_per_env(values, num_envs)[index] if value is None else value
    return split


def _own_vector(env: Any) -> Any:
    """Return the vector made here inside of wrappers of the program."""
    while not hasattr(type(env), "get_states"):
        env = env.env
    return env


def _seeds(seed: int | Sequence[int | None] | None, num_envs: int) -> Sequence[int | None]:
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, int):
        return [seed + index for index in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"Got {len(seed)} seeds for {num_envs} environments.")
    return seed


def _check_single_agent(env: Any) -> None:
    if getattr(env.unwrapped, "possible_agents", None) is None:
        return
    raise ValueError(
        f"{type(env.unwrapped).__name__} is a multi-agent environment. Name its modules with "
        "`config.multi_agent(policies=..., policy_mapping_fn=...)`."
    )
