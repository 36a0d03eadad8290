"""`CallbackList`: calls the hooks of several callbacks, and knows which hooks are overridden."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from syncline.rl.callbacks.callbacks import RLlibCallback
from syncline.rl.value_types import StateDict
from syncline.suggestions import did_you_mean

Hook = Callable[..., Any]
CallbackFactory = Callable[[], RLlibCallback]

HOOKS: tuple[str, ...] = tuple(name for name in vars(RLlibCallback) if name.startswith("on_"))
"""Names of all hooks, in the order of the class."""
OLDER_HOOKS = frozenset(
    {
        "on_sub_environment_created",
        "on_postprocess_trajectory",
        "on_create_policy",
        "on_learn_on_batch",
        "on_workers_recreated",
    }
)
"""Hooks of the API before modules and learners."""
EPISODE_HOOKS = frozenset(
    {"on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end"}
)
"""Hooks that need an episode object."""

# Names of arguments in older releases.
_OLDER_ARGUMENTS = {
    "worker": "env_runner",
    "base_env": "env",
    "policies": "rl_module",
    "trainer": "algorithm",
}


class CallbackList:
    """The callbacks of one algorithm or env runner.

    Instances run before functions, each group in the given order. A missing hook costs one lookup:
    `if callbacks.has("on_episode_step"): ...`.
    """

    def __init__(
        self,
        classes: CallbackFactory | Sequence[CallbackFactory] | None = None,
        functions: Mapping[str, Hook | Sequence[Hook] | None] | None = None,
    ) -> None:
        """Create an instance of every class (or other factory of a callback).

        Args:
            classes: Subclasses of `RLlibCallback`.
            functions: Functions by the name of their hook, such as "on_train_result".

        Raises:
            ValueError: Unknown hook.
            TypeError: A class does not create a callback, or a hook requires an unknown argument.
        """
        self.callbacks = [_make(factory) for factory in _as_list(classes)]
        self._hooks: dict[str, list[Hook]] = {}
        for callback in self.callbacks:
            for name in HOOKS:
                if _is_overridden(callback, name):
                    self._hooks.setdefault(name, []).append(_adapt(getattr(callback, name), name))
        for name, given in (functions or {}).items():
            if name not in HOOKS:
                raise ValueError(
                    f"Unknown callback {name!r}.{did_you_mean(name, HOOKS)} Callbacks: "
                    f"{', '.join(HOOKS)}."
                )
            for function in _as_list(given):
                self._hooks.setdefault(name, []).append(_adapt(function, name))

    @property
    def overridden(self) -> frozenset[str]:
        """Names of the hooks that are overridden."""
        return frozenset(self._hooks)

    @property
    def needs_episodes(self) -> bool:
        """True if a hook needs episodes during sampling."""
        return not EPISODE_HOOKS.isdisjoint(self._hooks)

    def has(self, name: str) -> bool:
        """Return True if a hook is overridden."""
        return name in self._hooks

    def call(self, name: str, **kwargs: object) -> None:
        """Call a hook of all callbacks."""
        for hook in self._hooks.get(name, ()):
            hook(**kwargs)

    def get_state(self) -> list[StateDict | None]:
        """Return the state of every callback that has `get_state`, and None for the others."""
        states: list[StateDict | None] = []
        for callback in self.callbacks:
            get_state = getattr(callback, "get_state", None)
            states.append(None if get_state is None else get_state())
        return states

    def set_state(self, states: Sequence[StateDict | None]) -> None:
        """Restore the states that `get_state` returned; skip new callbacks."""
        for callback, state in zip(self.callbacks, states, strict=False):
            set_state = getattr(callback, "set_state", None)
            if state is not None and set_state is not None:
                set_state(state)


def configured_callbacks(config: Any) -> CallbackList:
    """Create the callbacks of an algorithm's configuration."""
    return CallbackList(
        config.callbacks_class, {name: getattr(config, f"callbacks_{name}", None) for name in HOOKS}
    )


def make_callback(
    callback_name: str,
    callbacks_objects: RLlibCallback | Sequence[RLlibCallback] | None = None,
    callbacks_functions: Hook | Sequence[Hook] | None = None,
    *,
    args: Iterable[object] | None = None,
    kwargs: Mapping[str, object] | None = None,
) -> None:
    """Call a hook of callbacks, then functions."""
    hooks = [getattr(callback, callback_name) for callback in _as_list(callbacks_objects)]
    for hook in [*hooks, *_as_list(callbacks_functions)]:
        hook(*(args or ()), **(kwargs or {}))


def _as_list(value: object) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _make(factory: CallbackFactory) -> RLlibCallback:
    callback = factory() if callable(factory) else factory
    if not isinstance(callback, RLlibCallback):
        raise TypeError(
            f"config.callbacks({factory!r}) creates {callback!r}, which is not an "
            "RLlibCallback. Pass subclasses of RLlibCallback, or functions as "
            "on_train_result=..., on_episode_end=..."
        )
    return callback


def _is_overridden(callback: RLlibCallback, name: str) -> bool:
    if name in vars(callback):
        return True
    return getattr(type(callback), name) is not getattr(RLlibCallback, name)


def _adapt(function: Hook, name: str) -> Hook:
    """Wrap a function as a hook that takes all arguments of its event.

    The function gets the arguments that it declares; older names get the current values.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin, or an object that hides its signature
        return function
    _check_arguments(function, name, parameters)
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    known = _arguments(name)
    older = [old for old in _OLDER_ARGUMENTS if old in parameters]
    if takes_all and not older:
        return function
    named = None if takes_all else frozenset(parameters) & known

    def adapted(**kwargs: object) -> Any:
        for old in older:
            kwargs.setdefault(old, kwargs.get(_OLDER_ARGUMENTS[old]))
        if named is not None:
            kwargs = {key: value for key, value in kwargs.items() if key in named or key in older}
        return function(**kwargs)

    return adapted


def _arguments(name: str) -> frozenset[str]:
    """Return the names of a hook's arguments."""
    parameters = inspect.signature(getattr(RLlibCallback, name)).parameters
    return frozenset(parameters) - {"self", "kwargs"}


def _check_arguments(
    function: Hook, name: str, parameters: Mapping[str, inspect.Parameter]
) -> None:
    known = _arguments(name)
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        given = parameter.name in known or _OLDER_ARGUMENTS.get(parameter.name) in known
        positional = parameter.kind is parameter.POSITIONAL_ONLY
        if positional or (not given and parameter.default is parameter.empty):
            where = getattr(function, "__qualname__", repr(function))
            raise TypeError(
                f"The callback {where} requires the argument {parameter.name!r}, which {name} does "
                f"not get.{did_you_mean(parameter.name, known)} Arguments: "
                f"{', '.join(sorted(known))}. They are passed by keyword."
            )
