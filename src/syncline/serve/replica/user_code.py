"""`UserCode`: the user's class or function in a replica, its methods and its hooks.

Covered: the constructor (also async), `reconfigure`, `check_health`, `record_autoscaling_stats`,
`record_routing_stats`, `__del__`, and the lookup of methods. Calls are run by `handle_calls` and
`http_calls`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from syncline.serve.destructors import destroy
from syncline.serve.exceptions import RayServeException
from syncline.serve.replica.threads import HandlerThreads
from syncline.suggestions import did_you_mean

_CALL = "__call__"


class MethodKind(Enum):
    """How a method runs."""

    ASYNC = "async"
    SYNC = "sync"
    GENERATOR = "generator"
    ASYNC_GENERATOR = "async generator"


class Method:
    """A method of the user's object."""

    __slots__ = ("function", "kind", "label", "name", "takes_argument")

    def __init__(self, name: str, function: Callable[..., Any], label: str) -> None:
        self.name = name
        self.function = function
        self.kind = kind_of(function)
        self.takes_argument = _takes_argument(function)
        """True if it can be called with one positional argument."""
        self.label = label
        """Name for error messages."""


class UserCode:
    """The user's object. Methods are called on the loop's thread."""

    def __init__(self, func_or_class: object, deployment: str, threads: HandlerThreads) -> None:
        self._definition = func_or_class
        self._deployment = deployment
        self._threads = threads
        self._methods: dict[str, Method] = {}
        self.instance: Any = None
        """The instance of the class, or the function; None before `construct`."""

    async def construct(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Create the instance in the main thread; raises the errors of the constructor."""
        definition = self._definition
        if not isinstance(definition, type):
            self.instance = definition
        elif inspect.iscoroutinefunction(definition.__init__):  # type: ignore[misc]
            instance = definition.__new__(definition, *args, **kwargs)
            await instance.__init__(*args, **kwargs)
            self.instance = instance
        else:
            self.instance = definition(*args, **kwargs)

    def method(self, name: str) -> Method:
        """Return a method; raise RayServeException that names the existing ones."""
        method = self._methods.get(name)
        if method is None:
            method = self._methods[name] = self._find(name)
        return method

    def method_names(self) -> list[str]:
        """Return the names of the public methods and of `__call__`."""
        if not isinstance(self._definition, type):
            return ["__call__"]
        names = [name for name in dir(self.instance) if self._is_public(name)]
        return sorted(names, key=lambda name: (name != "__call__", name))

    # -- hooks

    async def reconfigure(self, user_config: object, rank: int, *, is_first: bool = False) -> None:
        """Pass `user_config` to the user's `reconfigure`.

        `user_config=None` is passed only to a method that takes a `rank`. Raises RayServeException
        if there is a `user_config` and no such method.
        """
        function = getattr(self.instance, "reconfigure", None)
        if not isinstance(self._definition, type) or not callable(function):
            if user_config is None:
                return
            raise RayServeException(
                f"deployment {self._deployment!r} has a `user_config`, but no method "
                f"`reconfigure(user_config)`: add one to the class, or remove `user_config`"
            )
        takes_rank = self.takes_rank
        if user_config is None and not takes_rank:
            return
        call = functools.partial(function, user_config, **({"rank": rank} if takes_rank else {}))
        await self._run(call, in_thread=not is_first)

    @property
    def takes_rank(self) -> bool:
        """True if `reconfigure` has a parameter `rank`."""
        function = getattr(self.instance, "reconfigure", None)
        return callable(function) and "rank" in _parameters(function)

    async def check_health(self) -> None:
        """Run the user's `check_health`; raises its error."""
        await self._hook("check_health")

    async def record_autoscaling_stats(self) -> dict[str, float] | None:
        """Return the result of the user's `record_autoscaling_stats`; None without it."""
        stats: dict[str, float] | None = await self._hook("record_autoscaling_stats")
        return stats

    async def record_routing_stats(self) -> dict[str, Any] | None:
        """Return the result of the user's `record_routing_stats`; None without it."""
        stats: dict[str, Any] | None = await self._hook("record_routing_stats")
        return stats

    def has_hook(self, name: str) -> bool:
        """Return True if the user's class has the method."""
        return isinstance(self._definition, type) and callable(getattr(self.instance, name, None))

    async def destroy(self) -> None:
        """Run `__del__`, sync or async; Python will not run it again."""
        if isinstance(self._definition, type) and self.instance is not None:
            await destroy(self.instance, is_final=True)

    async def _hook(self, name: str) -> Any:
        return await self._run(getattr(self.instance, name)) if self.has_hook(name) else None

    async def _run(self, function: Callable[[], object], *, in_thread: bool = True) -> Any:
        if in_thread and kind_of(function) is MethodKind.SYNC:
            result = await self._threads.submit(function)
        else:
            result = function()
        return await result if inspect.isawaitable(result) else result

    # -- methods

    def _find(self, name: str) -> Method:
        instance = self.instance
        if isinstance(self._definition, type):
            function = getattr(instance, name, None)
        else:
            function = instance if name == _CALL else None
        if not callable(function):
            names = self.method_names()
            raise RayServeException(
                f"deployment {self._deployment!r} has no method {name!r}."
                f"{did_you_mean(name, names)} Its methods are: {', '.join(names) or 'none'}."
            )
        label = name if isinstance(self._definition, type) else self._function_name
        return Method(name, function, f"{self._deployment}.{label}")

    @property
    def _function_name(self) -> str:
        return getattr(self.instance, "__name__", type(self.instance).__name__)

    def _is_public(self, name: str) -> bool:
        if name.startswith("_") and name != "__call__":
            return False
        found = inspect.getattr_static(self.instance, name, None)
        return callable(found) or isinstance(found, (classmethod, staticmethod))


def kind_of(function: Callable[..., object]) -> MethodKind:
    """Return how a function, method, partial or callable object runs."""
    while isinstance(function, functools.partial):
        function = function.func
    if not (inspect.isroutine(function) or isinstance(function, type)):
        function = getattr(type(function), _CALL, function)
    if inspect.isasyncgenfunction(function):
        return MethodKind.ASYNC_GENERATOR
    if inspect.iscoroutinefunction(function):
        return MethodKind.ASYNC
    if inspect.isgeneratorfunction(function):
        return MethodKind.GENERATOR
    return MethodKind.SYNC


def _parameters(function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # of an extension module
        return {}


def _takes_argument(function: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return any(parameter.kind in kinds for parameter in parameters)
