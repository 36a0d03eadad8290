"""Creation of the vector environment of an env runner, and the states of its environments.

Covered: the three kinds of single-agent vectors. Not covered: their implementations
(`sync_vector`, `async_vector`, `native_vector`) and multi-agent environments
(`multi_agent_vector`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

from syncline.rl.envs.async_vector import make_async
from syncline.rl.envs.env_context import EnvContext
from syncline.rl.envs.env_guard import EnvGuard
from syncline.rl.envs.native_vector import NativeVectorEnv
from syncline.rl.envs.registry import EnvMaker, resolve_env
from syncline.rl.envs.sync_vector import GuardedSyncVectorEnv
from syncline.rl.value_types import Env, VectorEnv


class VectorOptions(Protocol):
    """Options that affect vector environments."""

    env: Env
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
) -> VectorEnv:
    """Create the environments of an env runner.

    Args:
        config: Options of the environment and of the vector.
        num_envs: Number of environments.
        worker_index: Index of the env runner.
        num_workers: Number of env runners.
        first_env: Index of the first environment among all environments of the run.
        recreated_worker: The env runner replaces a failed one.

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


def get_env_states(env: Env) -> list[bytes | None]:
    """Return the state of each environment of a vector, or None if it cannot be saved."""
    states: list[bytes | None] = _own_vector(env).get_states()
    return states


def set_env_states(env: Env, states: Sequence[bytes | None]) -> None:
    """Restore the states that `get_env_states` returned.

    Raises:
        ValueError: The number or classes of environments differ, or a state is None.
    """
    vector = _own_vector(env)
    if len(states) != vector.num_envs or any(state is None for state in states):
        missing = sum(state is None for state in states)
        raise ValueError(
            f"Cannot restore {vector.num_envs} environments from {len(states)} states; "
            f"{missing} of them could not be saved."
        )
    vector.set_states(states)


def _own_vector(env: Any) -> Any:
    """Return the vector below user-defined wrappers."""
    while not hasattr(type(env), "get_states"):
        env = env.env
    return env
