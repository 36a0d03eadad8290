"""Creation of multi-agent environments for an env runner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from syncline.rl.envs.env_context import EnvContext
from syncline.rl.envs.multi_agent_guard import GuardedMultiAgentEnv
from syncline.rl.envs.registry import resolve_env
from syncline.rl.value_types import Env


class MultiAgentOptions(Protocol):
    """Options that affect multi-agent environments."""

    env: Env
    env_config: Any
    restart_failed_sub_environments: bool
    disable_env_checking: bool
    render_env: bool


def make_multi_agent_env(
    config: MultiAgentOptions,
    *,
    worker_index: int = 0,
    vector_index: int = 0,
    num_workers: int | None = None,
    index: int | None = None,
    recreated_worker: bool = False,
) -> GuardedMultiAgentEnv:
    """Create one multi-agent environment.

    Args:
        config: Options of the environment.
        worker_index: Index of the env runner.
        vector_index: Index of the environment in the env runner.
        num_workers: Number of env runners.
        index: Index among all environments of the run; by default `vector_index`.
        recreated_worker: The env runner replaces a failed one.

    Raises:
        ValueError: Unknown environment.
        EnvError: It could not be created, is not a multi-agent environment, or lacks a space.
    """
    maker = resolve_env(config.env, render_mode="rgb_array" if config.render_env else None)
    env_config: Mapping[str, object] = config.env_config or {}
    return GuardedMultiAgentEnv(
        maker.make,
        context=EnvContext(
            dict(env_config),
            worker_index=worker_index,
            vector_index=vector_index,
            num_workers=num_workers,
            recreated_worker=recreated_worker,
        ),
        index=vector_index if index is None else index,
        name=maker.name,
        restart=config.restart_failed_sub_environments,
        check=not config.disable_env_checking,
    )
