"""Variants of CartPole: sparse rewards, nested observations, masked actions, failures."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

from syncline.rl.value_types import (
    Batch,
    Env,
    EnvConfig,
    EnvReset,
    EnvStep,
    Info,
    Options,
    Space,
    Tree,
)

Obs = Batch


class CartPoleSparseRewards(Env):
    """CartPole with the sum of rewards at the end, and saved states for planning.

    The observation has the keys `obs` and `action_mask`. A truncated episode has no reward.
    """

    def __init__(self, config: EnvConfig | None = None) -> None:
        self.env = gym.make("CartPole-v1")
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Dict(
            {"obs": self.env.observation_space, "action_mask": spaces.Box(0, 1, (2,), np.int8)}
        )
        self.running_reward = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[Obs, Info]:
        self.running_reward = 0.0
        obs, info = self.env.reset(seed=seed, options=options)
        return self._masked(obs), info

    def step(self, action: Tree) -> EnvStep:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.running_reward += float(reward)
        score = self.running_reward if terminated else 0.0
        return self._masked(obs), score, terminated, truncated, info

    def get_state(self) -> Tree:
        """Return the state; it can be restored several times."""
        pole, limit = self._layers()
        place = np.array(pole.state), pole.steps_beyond_terminated
        random = pole.np_random.bit_generator.state
        return place, limit._elapsed_steps, self.running_reward, random

    def set_state(self, state: Tree) -> Obs:
        """Restore a state, and return its observation."""
        pole, limit = self._layers()
        (place, pole.steps_beyond_terminated), limit._elapsed_steps, self.running_reward, random = (
            state
        )
        pole.np_random.bit_generator.state = random
        pole.state = place.copy()
        return self._masked(np.array(place, np.float32))

    def _layers(self) -> tuple[Any, Any]:
        """Return the environment and the wrapper that limits its steps."""
        limit: Any = self.env
        while not isinstance(limit, gym.wrappers.TimeLimit):
            limit = limit.env
        return self.env.unwrapped, limit

    def _masked(self, obs: Tree) -> Obs:
        return {"obs": obs, "action_mask": np.ones(2, np.int8)}


class CartPoleWithDictObservationSpace(CartPoleEnv):
    """CartPole with observations in nested dicts and a tuple, and an additional random number."""

    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__()
        box = self.observation_space
        assert isinstance(box, spaces.Box)
        low, high = box.low, box.high
        self.observation_space: Space = spaces.Dict(
            {
                "x-pos": spaces.Box(low[0], high[0], (1,), np.float32),
                "angular-pos": spaces.Dict(
                    {
                        "value": spaces.Box(low[2], high[2], (), np.float32),
                        "some_random_stuff": spaces.Discrete(3),
                    }
                ),
                "velocs": spaces.Tuple(
                    [
                        spaces.Box(low[1], high[1], (1,), np.float32),
                        spaces.Box(low[3], high[3], (), np.float32),
                    ]
                ),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> EnvReset:
        obs, info = super().reset(seed=seed, options=options)
        return self._nested(obs), info

    def step(self, action: Tree) -> EnvStep:
        result: EnvStep = super().step(action)  # type: ignore[no-untyped-call]
        obs, reward, terminated, truncated, info = result
        return self._nested(obs), reward, terminated, truncated, info

    def _nested(self, obs: Tree) -> Obs:
        return {
            "x-pos": obs[:1],
            "angular-pos": {
                "value": np.array(obs[2]),
                "some_random_stuff": int(self.np_random.integers(3)),
            },
            "velocs": (obs[1:2], np.array(obs[3])),
        }


class ParametricActionsCartPole(Env):
    """CartPole with its two actions hidden at changing positions among `max_avail_actions`.

    Observations: `cart`, `action_mask`, and `avail_actions`, an embedding of two numbers for each
    action (zeros for unavailable ones). Unavailable actions raise ValueError.
    """

    def __init__(self, max_avail_actions: int | Options = 10) -> None:
        if isinstance(max_avail_actions, dict):
            max_avail_actions = int(max_avail_actions.get("max_avail_actions", 10))
        self.wrapped = gym.make("CartPole-v1")
        self.num_actions = max_avail_actions
        self.action_space = spaces.Discrete(max_avail_actions)
        self.observation_space = spaces.Dict(
            {
                "action_mask": spaces.Box(0, 1, (max_avail_actions,), np.int8),
                "avail_actions": spaces.Box(-10, 10, (max_avail_actions, 2)),
                "cart": self.wrapped.observation_space,
            }
        )
        self.embeddings = np.array([[-0.5, 0.5], [0.5, -0.5]], np.float32)
        self.places = [0, 1]

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[Obs, Info]:
        super().reset(seed=seed)
        obs, info = self.wrapped.reset(seed=seed, options=options)
        return self._shuffled(obs), info

    def step(self, action: Tree) -> EnvStep:
        if action not in self.places:
            raise ValueError(
                f"The action {action} is not available; the available ones are {self.places}."
            )
        obs, reward, terminated, truncated, info = self.wrapped.step(self.places.index(action))
        return self._shuffled(obs), reward, terminated, truncated, info

    def _shuffled(self, cart: Tree) -> Obs:
        self.places = self.np_random.permutation(self.num_actions)[:2].tolist()
        mask = np.zeros(self.num_actions, np.int8)
        available = np.zeros((self.num_actions, 2), np.float32)
        mask[self.places] = 1
        available[self.places] = self.embeddings
        return {"action_mask": mask, "avail_actions": available, "cart": cart}


class CartPoleCrashing(CartPoleEnv):
    """CartPole that fails or stalls at random, for tests of fault tolerance.

    Configuration: `p_crash` (0.005) and `p_crash_reset` (0), probabilities per call;
    `crash_after_n_steps`, a number of steps or a range (low, high); `crash_on_worker_indices`, the
    env runners that fail, by default all; the same options with `stall` instead of `crash`
    (`p_stall` is 0 by default); `stall_time_sec` and `init_time_s`, seconds or ranges.
    """

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.config: EnvConfig = {} if config is None else config
        self.worker_index = getattr(config, "worker_index", 0)
        self.vector_index = getattr(config, "vector_index", 0)
        self.timesteps = 0
        self._faults = np.random.default_rng()
        self._planned: dict[str, int] = {}
        time.sleep(self._drawn(self.config.get("init_time_s")))

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> EnvReset:
        self.timesteps = 0
        self._planned = {}
        self._misbehave("_reset", 0.0, "reset()")
        obs, info = super().reset(seed=seed, options=options)
        return obs, info

    def step(self, action: Tree) -> EnvStep:
        self.timesteps += 1
        self._misbehave("", 0.005, "step()")
        result: EnvStep = super().step(action)  # type: ignore[no-untyped-call]
        return result

    def _misbehave(self, suffix: str, default: float, call: str) -> None:
        if self._is_due("crash", suffix, default):
            raise RuntimeError(
                f"Simulated failure in {call} of env runner {self.worker_index}, environment "
                f"{self.vector_index}."
            )
        if self._is_due("stall", suffix, 0.0):
            time.sleep(self._drawn(self.config.get("stall_time_sec")))

    def _is_due(self, kind: str, suffix: str, default: float) -> bool:
        workers = self.config.get(f"{kind}_on_worker_indices")
        if workers and self.worker_index not in workers:
            return False
        if self._faults.random() < self.config.get(f"p_{kind}{suffix}", default):
            return True
        after = self.config.get(f"{kind}_after_n_steps")
        if after is None or suffix:
            return False
        if kind not in self._planned:
            ranged = isinstance(after, (tuple, list))
            self._planned[kind] = int(self._faults.integers(*after)) if ranged else int(after)
        return self._planned[kind] == self.timesteps

    def _drawn(self, seconds: Any) -> float:
        if isinstance(seconds, (tuple, list)):
            return float(self._faults.uniform(*seconds))
        return float(seconds or 0.0)
