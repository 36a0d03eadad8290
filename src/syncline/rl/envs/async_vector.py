"""`GuardedAsyncVectorEnv`: each environment in a separate process."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from syncline.rl.envs.env_guard import EnvGuard
from syncline.rl.envs.env_state import get_env_state, set_env_state
from syncline.rl.envs.sync_vector import check_single_agent
from syncline.rl.value_types import Env, EnvReset, EnvStep, Space, Tree


class GuardedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """A guarded environment inside the worker process of an asynchronous vector."""

    def __init__(self, guard: EnvGuard) -> None:
        super().__init__(guard.env)
        self._guard = guard
        self._last_obs: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> EnvReset:
        self._last_obs, info = self._guard.reset(seed, options)
        self.env = self._guard.env
        return self._last_obs, info

    def step(self, action: Tree) -> EnvStep:
        try:
            result = self._guard.step(action)
        except Exception as error:
            result = self._guard.recover(error, action, self._last_obs)
        self.env = self._guard.env
        self._last_obs = result[0]
        return result

    @property
    def num_restarts(self) -> int:
        """Number of times that the environment was recreated."""
        return self._guard.num_restarts

    def saved_state(self) -> bytes | None:
        """Return the state of the environment."""
        return get_env_state(self.env)

    def restore_state(self, states: Sequence[bytes], first_index: int) -> None:
        """Restore the state of this environment from the states of the vector."""
        set_env_state(self.env, states[self._guard.index - first_index])


# Without type arguments: it is generic only from gymnasium 1.3 on.
class GuardedAsyncVectorEnv(gym.vector.AsyncVectorEnv):
    """Steps each environment in a separate process; for steps that take longer than 0.3 ms."""

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
        """Number of environments recreated after a failure."""
        return sum(self.get_attr("num_restarts"))

    def get_states(self) -> list[bytes | None]:
        """Return the state of each environment, or None if it cannot be saved."""
        return list(self.call("saved_state"))

    def set_states(self, states: Sequence[bytes]) -> None:
        """Restore the states of the environments."""
        self.call("restore_state", list(states), self._first_index)


def make_async(guards: Sequence[Callable[[], EnvGuard]]) -> GuardedAsyncVectorEnv:
    """Return the vector with environments in processes."""
    dummy = guards[0]()
    check_single_agent(dummy.env)
    plain = _has_arrays_only(dummy.env.observation_space)
    dummy.env.close()
    return GuardedAsyncVectorEnv(guards, dummy.index, shared_memory=plain)


def _in_process(make_guard: Callable[[], EnvGuard], owner: int) -> Env:
    if os.getpid() != owner:
        threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    return GuardedEnv(make_guard())


def _exit_with_parent(parent: int) -> None:
    """Exit when the parent dies; siblings keep the pipes open, so they do not signal it."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _has_arrays_only(space: Space) -> bool:
    if isinstance(space, spaces.Dict):
        return all(_has_arrays_only(each) for each in space.values())
    if isinstance(space, spaces.Tuple):
        return all(_has_arrays_only(each) for each in space)
    return isinstance(
        space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    )
