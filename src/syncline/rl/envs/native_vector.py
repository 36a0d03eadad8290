"""`NativeVectorEnv`: a vectorized environment with a native batched step."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from syncline.rl.envs.checks import mismatch
from syncline.rl.envs.env_errors import EnvError
from syncline.rl.envs.env_state import get_env_state, set_env_state
from syncline.rl.envs.sync_vector import CHECKED_STEPS
from syncline.rl.envs.vector_step import FINAL_OBS, RESET_ONLY, VectorStep
from syncline.rl.value_types import Arrays, Info, Tree, VectorEnv


# Without type arguments: it is generic only from gymnasium 1.3 on.
class NativeVectorEnv(gym.vector.VectorWrapper):
    """A vectorized environment with a native batched step and any autoreset mode.

    Vectors with `AutoresetMode.NEXT_STEP` (gymnasium's default, and envpool) reset in the step
    after the end of an episode. Their last observations appear in `final_obs` as usual and also as
    the observation; `infos["reset_only"]` masks the following step.
    """

    def __init__(self, env: VectorEnv, name: str) -> None:
        super().__init__(env)
        self._name = name
        mode = (env.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self.autoreset_mode = mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
        self._resets_next = np.zeros(env.num_envs, bool)
        self._steps_to_check = CHECKED_STEPS
        self.num_restarts = 0

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, object] | None = None,
    ) -> tuple[Arrays, Info]:
        """Reset all environments; only the first of several seeds is used."""
        if seed is not None and not isinstance(seed, int):
            seed = seed[0]
        self._resets_next[:] = False
        obs, infos = self.env.reset(seed=seed, options=options)
        self._check(obs, np.zeros(self.num_envs))
        return _copied(obs), infos

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
            _copied(obs),
            np.array(rewards, np.float64),
            np.array(terminated),
            np.array(truncated),
            infos,
        )

    def _mark_next_step(self, obs: Arrays, done: np.ndarray, infos: Info) -> Info:
        if not (done.any() or self._resets_next.any()):
            return infos
        marked = dict(infos)
        if self._resets_next.any():
            marked[RESET_ONLY] = self._resets_next
        if done.any():
            marked[FINAL_OBS] = _split(obs, done)
        self._resets_next = done
        return marked

    def _check(self, obs: Arrays, rewards: Tree) -> None:
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

    def get_states(self) -> list[bytes | None]:
        """Return the state of the whole vector as the first of the list."""
        state = get_env_state(self.env)
        if state is None:
            return [None] * self.num_envs
        return [state, *[b""] * (self.num_envs - 1)]

    def set_states(self, states: Sequence[bytes]) -> None:
        """Restore the state that `get_states` returned."""
        if not states[0] or any(states[1:]):
            raise ValueError(
                f"The vector {self._name} can only be restored as a whole: use the same number "
                "of environments and env runners as the saved run."
            )
        set_env_state(self.env, states[0])


def _copied(batch: Arrays) -> Arrays:
    """Return observations that later steps do not change."""
    if isinstance(batch, dict):
        return {key: _copied(value) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_copied(value) for value in batch)
    return np.array(batch)


def _split(batch: Arrays, where: np.ndarray) -> list[Tree]:
    """Return the values of the marked environments by index, and None for the others."""
    chosen: list[Tree] = [None] * len(where)
    for index in np.flatnonzero(where):
        chosen[index] = _one_of(batch, int(index))
    return chosen


def _one_of(batch: Arrays, index: int) -> Tree:
    if isinstance(batch, dict):
        return {key: _one_of(value, index) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_one_of(value, index) for value in batch)
    return np.array(batch[index])
