"""`EnvGuard`: one environment of a vector, with checks, clear errors and restarts.

Covered: checked step and reset, adaptation of gym's older API, errors that name the environment,
its configuration and seed, and restarts after failures. Not covered: loops over several
environments (`vector`), hanging environments (time limits of env runners).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from syncline.rl.envs.checks import mismatch, out_of_bounds, reset_problem, step_problem
from syncline.rl.envs.env_context import EnvContext
from syncline.rl.envs.env_errors import EnvError, StepFailedRecreateEnvError, user_frame
from syncline.rl.envs.older_gym import OlderGymEnv, as_new_step
from syncline.rl.value_types import Env, EnvReset, EnvStep, Options, Tree

logger = logging.getLogger("syncline")

MAX_FAILURES_IN_A_ROW = 10
"""Number of consecutive failures without a successful step after which an error is raised."""

_SEED_STRIDE = 1_000_003
"""Difference between the seeds before and after a restart."""


class FailureHandler:
    """Explains failures of one environment, and recreates it if allowed.

    Args:
        make: Creates the environment.
        context: Its configuration.
        index: Its index among all environments of the run.
        name: Name of the environment in error messages.
        restart: Recreate it after any exception.
    """

    def __init__(
        self,
        make: Callable[[EnvContext], object],
        *,
        context: EnvContext,
        index: int,
        name: str,
        restart: bool,
    ) -> None:
        self._make = make
        self._context = context
        self._restart = restart
        self.index = index
        self.name = name
        self._seed: int | None = None
        self._fresh_seed: int | None = None  # of an environment that was recreated
        self._failures = 0
        self.num_restarts = 0
        """Number of times that the environment was recreated."""

    def seeded(self, seed: int | None) -> None:
        """Record the seed of a reset."""
        if seed is not None:
            self._seed = seed

    def next_seed(self, seed: int | None) -> int | None:
        """Return the seed for a reset: the given one, or a new one for a recreated environment."""
        if seed is None:
            seed, self._fresh_seed = self._fresh_seed, None
        return seed

    def succeeded(self) -> None:
        """Record a successful step."""
        self._failures = 0

    def replace(self, env: Env, error: Exception, call: str) -> Any:
        """Return a new environment to replace the one that failed in `call`.

        Raises:
            EnvError: Restarts are disabled, or too many consecutive restarts failed.
        """
        requested = isinstance(error, StepFailedRecreateEnvError)
        self._failures += 1
        text = self._describe(error, call)
        if not (self._restart or requested):
            raise EnvError(
                f"{text}\nSet `fault_tolerance(restart_failed_sub_environments=True)` to create "
                f"such environments again.\n{user_frame(error)}"
            ) from error
        if self._failures > MAX_FAILURES_IN_A_ROW:
            raise EnvError(
                f"{text}\nIt was recreated {MAX_FAILURES_IN_A_ROW} times without a successful "
                f"step since.\n{user_frame(error)}"
            ) from error
        if not requested:
            logger.warning("%s\nIt is recreated.\n%s", text, user_frame(error))
        try:
            env.close()
        except Exception as close_error:
            logger.debug("Closing a failed environment raised %r.", close_error)
        self.num_restarts += 1
        if self._seed is not None:
            self._fresh_seed = (self._seed + self.num_restarts * _SEED_STRIDE) % 2**31
        return self._make(self._context)

    def _describe(self, error: Exception, call: str) -> str:
        context = self._context
        what = str(error) if isinstance(error, EnvError) else f"{type(error).__name__}: {error}"
        return (
            f"Environment {self.index} ({self.name}; env runner {context.worker_index}, index "
            f"{context.vector_index}) failed in {call}: {what}\n"
            f"env_config={_short(dict(context), 1000)}, last seed {self._seed}"
        )


class EnvGuard:
    """A single-agent environment that is checked, and replaced after failures.

    Arguments as for `FailureHandler`, and:
        check: Check the returned values.
    """

    def __init__(
        self,
        make: Callable[[EnvContext], Env],
        *,
        context: EnvContext,
        index: int,
        name: str,
        restart: bool = False,
        check: bool = True,
    ) -> None:
        self._failures = FailureHandler(
            make, context=context, index=index, name=name, restart=restart
        )
        self.index = index
        """Index of the environment among all environments of the run."""
        self._check = check
        self._warned = False
        self.env = make(context)

    @property
    def num_restarts(self) -> int:
        """Number of times that the environment was recreated."""
        return self._failures.num_restarts

    # ---- checked calls ----

    def step(self, action: Tree) -> EnvStep:
        """Step with checks; exceptions of the environment propagate."""
        result: Any = self.env.step(action)
        if isinstance(result, tuple) and len(result) == 4:
            self.env = OlderGymEnv(self.env)
            result = as_new_step(result)
        if self._check:
            problem = step_problem(result) or self._observation_problem(result[0])
            if problem:
                raise EnvError(problem)
        self._failures.succeeded()
        made: EnvStep = result
        return made

    def reset(self, seed: int | None = None, options: Options | None = None) -> EnvReset:
        """Reset with checks, and with restarts if enabled.

        Raises:
            EnvError: It failed.
        """
        self._failures.seeded(seed)
        while True:
            seed = self._failures.next_seed(seed)
            try:
                return self._reset_once(seed, options)
            except Exception as error:
                self.env = self._failures.replace(self.env, error, f"reset(seed={seed})")
                seed = None

    def _reset_once(self, seed: int | None, options: dict[str, object] | None) -> EnvReset:
        result: Any = self.env.reset(seed=seed, options=options)
        if not isinstance(result, tuple) and not isinstance(self.env, OlderGymEnv):
            self.env = OlderGymEnv(self.env)
            result = result, {}
        if self._check:
            problem = reset_problem(result) or self._observation_problem(result[0])
            if problem:
                raise EnvError(problem)
        obs, info = result
        return obs, info

    def recover(self, error: Exception, action: Tree, last_obs: Tree) -> EnvStep:
        """Handle an exception in a step: recreate the environment if allowed.

        The step then counts as truncated, without reward, and repeats the previous observation.

        Raises:
            EnvError: Restarts are disabled, or too many consecutive restarts failed.
        """
        self.env = self._failures.replace(self.env, error, f"step({_short(action)})")
        return last_obs, 0.0, False, True, {"env_restarted": True}

    def _observation_problem(self, obs: Tree) -> str | None:
        space = self.env.observation_space
        problem = mismatch(space, obs)
        if problem is None and not self._warned:
            outside = out_of_bounds(space, obs)
            if outside:
                self._warned = True
                logger.warning(
                    "Environment %d (%s): %s, the bounds of its observation space. Narrow bounds "
                    "distort observations that are scaled by them. Logged once.",
                    self.index,
                    self._failures.name,
                    outside,
                )
        return problem


def _short(value: object, limit: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
