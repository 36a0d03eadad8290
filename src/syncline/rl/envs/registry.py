"""`EnvMaker`: creates the environments that `config.environment(env=...)` describes.

Covered: names of `tune.register_env`, gymnasium ids (with a module as `module:Id-v0`; those of
`ale_py`), classes, functions, dotted paths, specs of gymnasium, `envpool:Id-v0`. Not covered:
vectors of environments (`vector`).
"""

from __future__ import annotations

import copy
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from syncline.optional import load
from syncline.rl.envs.env_context import EnvContext
from syncline.rl.envs.env_errors import EnvError, user_frame
from syncline.rl.envs.multi_agent_env import MultiAgentEnv
from syncline.rl.envs.older_gym import OlderGymEnv, has_older_reset
from syncline.rl.value_types import EnvConfig, Options
from syncline.suggestions import did_you_mean
from syncline.tune.registry import registered_environments

ENVPOOL_PREFIX = "envpool:"
_ATARI_PREFIXES = ("ale_py:", "ALE/")
_NAMES_SHOWN = 10

Creator = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class EnvMaker:
    """A resolved environment, which can be sent to processes with other registries."""

    name: str
    """Name in error messages."""
    kind: Literal["creator", "gymnasium", "envpool"]
    """Kind of creation: by a function, gymnasium's registry or envpool."""
    creator: Creator | None = None
    """Class or function that takes the `EnvContext`."""
    spec: EnvSpec | None = None
    """Entry of gymnasium's registry."""
    render_mode: str | None = None
    """Argument `render_mode` for environments of gymnasium's registry."""

    def make(self, context: EnvContext) -> Any:
        """Create one environment, a `gymnasium.Env` or `MultiAgentEnv`; adapt other classes.

        Raises:
            EnvError: The creator raised an exception or did not return an environment.
        """
        if self.kind == "envpool":
            raise ValueError(
                f"{ENVPOOL_PREFIX}{self.name} exists only as a vector. Set "
                '`env_runners(gym_env_vectorize_mode="vector_entry_point")`.'
            )
        try:
            env = self._call(context) if self.spec is None else self._make_registered(context)
        except Exception as error:
            raise EnvError(
                f"Creating the environment {self.name} failed: {type(error).__name__}: {error}\n"
                f"env_config={dict(context)}, env runner {context.worker_index}, index "
                f"{context.vector_index}\n{user_frame(error)}"
            ) from error
        missing = [
            each
            for each in ("reset", "step", "observation_space", "action_space")
            if not hasattr(env, each)
        ]
        if missing:
            raise EnvError(
                f"The creator of {self.name} returned {env!r}, which has no {', '.join(missing)}. "
                "Return a gymnasium.Env or a MultiAgentEnv."
            )
        if isinstance(env, MultiAgentEnv) or not has_older_reset(env):
            return env
        return OlderGymEnv(env)

    def make_vector(self, context: EnvContext, num_envs: int, seed: int | None) -> Any:
        """Create a vectorized environment with a native batched step.

        A creator gets the context with the key `num_envs` and must return a
        `gymnasium.vector.VectorEnv`. `seed` is used by envpool.
        """
        if self.kind == "envpool":
            return _make_envpool(self.name, num_envs, seed, dict(context))
        if self.spec is not None:
            if self.spec.vector_entry_point is None:
                raise ValueError(
                    f"{self.name} has no vectorized version: its registration has no "
                    '`vector_entry_point`. Set `env_runners(gym_env_vectorize_mode="sync")`.'
                )
            return gym.make_vec(
                self.spec, num_envs, vectorization_mode="vector_entry_point", **context
            )
        vector = self._call(context.copy_with_overrides({**context, "num_envs": num_envs}))
        if not isinstance(vector, gym.vector.VectorEnv):
            raise EnvError(
                f"The creator of {self.name} returned a {type(vector).__name__}, but with "
                'gym_env_vectorize_mode="vector_entry_point" it must return a '
                "gymnasium.vector.VectorEnv with `num_envs` environments."
            )
        return vector

    def _call(self, context: EnvContext) -> Any:
        assert self.creator is not None
        if _is_gymnasium_class(self.creator):
            return self.creator(**context)
        try:
            parameters = inspect.signature(self.creator).parameters
        except (TypeError, ValueError):  # a builtin or C class
            return self.creator(context)
        return self.creator(context) if _takes_context(parameters) else self.creator()

    def _make_registered(self, context: EnvContext) -> Any:
        # Runners check the values, and reset before the first step.
        spec = copy.copy(self.spec)
        assert spec is not None
        spec.order_enforce = False
        given: Options = dict(context)
        if self.render_mode is not None:
            given.setdefault("render_mode", self.render_mode)
        return gym.make(spec, disable_env_checker=True, **given)


def resolve_env(env: object, *, render_mode: str | None = None) -> EnvMaker:
    """Resolve the `env` option to a maker of environments.

    Args:
        env: Argument of `config.environment(...)`.
        render_mode: Argument `render_mode` for environments of gymnasium's registry.

    Raises:
        ValueError: `env` is missing or an unknown name; the message suggests the nearest name.
            TypeError: `env` has an unsupported type.
    """
    if isinstance(env, EnvMaker):
        return env
    if env is None:
        raise ValueError(
            "No environment is set. Call `config.environment(env=...)` with a gymnasium id, a name "
            "of `tune.register_env`, a class, or a function that takes an EnvContext."
        )
    if isinstance(env, EnvSpec):
        return EnvMaker(name=env.id, kind="gymnasium", spec=env, render_mode=render_mode)
    if isinstance(env, (gym.Env, gym.vector.VectorEnv)):
        raise TypeError(
            f"config.environment(env={env!r}) got an environment instance. Pass its class, or a "
            "function that creates it: each env runner needs its own instance."
        )
    if not isinstance(env, str):
        if callable(env):
            return EnvMaker(name=_name_of(env), kind="creator", creator=env)
        raise TypeError(
            f"config.environment(env={env!r}) is a {type(env).__name__}. Pass a gymnasium id, a "
            "name of `tune.register_env`, a class, or a function that takes an EnvContext."
        )
    creator = registered_environments().get(env)
    if creator is not None:
        return EnvMaker(name=env, kind="creator", creator=creator)
    if env.startswith(ENVPOOL_PREFIX):
        return EnvMaker(name=env.removeprefix(ENVPOOL_PREFIX), kind="envpool")
    if env.startswith(_ATARI_PREFIXES):
        load("ale_py", purpose=f"The environment {env!r}", install="ale-py")
    spec = _registered_spec(env)
    if spec is not None:
        return EnvMaker(name=env, kind="gymnasium", spec=spec, render_mode=render_mode)
    return EnvMaker(name=env, kind="creator", creator=_from_path(env))


def _registered_spec(env_id: str) -> EnvSpec | None:
    """Return the entry of gymnasium's registry, or None; imports the module of `module:Id-v0`."""
    module, _, name = env_id.rpartition(":")
    if module:
        if not name or "-v" not in name:
            return None
        load(module, purpose=f"The environment {env_id!r}", install=module.split(".")[0])
    try:
        return gym.spec(name)
    except gym.error.Error:
        return None


def _from_path(path: str) -> Creator:
    """Return the class or function at a dotted path."""
    try:
        found = pkgutil.resolve_name(path) if "." in path else None
    except (ImportError, AttributeError) as error:
        raise ValueError(_unknown(path, f" {type(error).__name__}: {error}.")) from error
    except ValueError:  # not a dotted path
        found = None
    if not callable(found):
        raise ValueError(_unknown(path))
    creator: Creator = found
    return creator


def _unknown(env: str, reason: str = "") -> str:
    registered = registered_environments()
    near = did_you_mean(env, registered) or did_you_mean(env, gym.registry)
    names = sorted(registered)
    listed = ", ".join(names[:_NAMES_SHOWN]) or "none"
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return (
        f"Unknown environment {env!r}.{reason}{near} Names of `tune.register_env`: {listed}{more}. "
        "For a gymnasium id, name the package that registers it, for example as "
        f"'package:{env}'."
    )


def _make_envpool(name: str, num_envs: int, seed: int | None, config: EnvConfig) -> Any:
    envpool = load(
        "envpool", purpose=f"The environment '{ENVPOOL_PREFIX}{name}'", install="envpool"
    )
    if name not in envpool.list_all_envs():
        raise ValueError(
            f"envpool has no environment {name!r}.{did_you_mean(name, envpool.list_all_envs())}"
        )
    seeded = {} if seed is None else {"seed": seed}
    return envpool.make(name, env_type="gymnasium", num_envs=num_envs, **{**seeded, **config})


def _is_gymnasium_class(creator: Creator) -> bool:
    """Return True for a gymnasium environment class whose constructor takes keyword arguments."""
    return inspect.isclass(creator) and creator.__module__.startswith("gymnasium.envs.")


def _takes_context(parameters: Mapping[str, inspect.Parameter]) -> bool:
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return any(each.kind in positional for each in parameters.values())


def _name_of(creator: Creator) -> str:
    return str(getattr(creator, "__qualname__", None) or repr(creator))
