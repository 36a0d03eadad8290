"""`deployment`, `Deployment` and `Application`: what programs declare and bind.

Declaring starts nothing: `application_graph` turns a bound application into the targets that `run`
deploys.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from copy import copy
from typing import Any, NoReturn, SupportsIndex, overload

from syncline.core.remote import ActorClass, RemoteFunction
from syncline.core.signatures import call_check, parameter_list
from syncline.serve.config import BackpressureConfig, DeploymentConfig
from syncline.serve.option_values import wrong_type

FunctionOrClass = Callable[..., Any]


class Deployment:
    """A class or function with options; its replicas run in processes. Made by `deployment`."""

    def __init__(self, *_args: object, **_options: object) -> None:
        raise RuntimeError(
            "`Deployment` cannot be constructed directly: decorate a class or function with "
            "`@serve.deployment`"
        )

    _func_or_class: FunctionOrClass
    _name: str
    _config: DeploymentConfig
    _init_args: tuple[object, ...]
    _init_kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        """Name within the application."""
        return self._name

    @property
    def func_or_class(self) -> FunctionOrClass:
        """The decorated class or function."""
        return self._func_or_class

    @property
    def config(self) -> DeploymentConfig:
        """All options."""
        return self._config

    @property
    def num_replicas(self) -> int:
        """Number of replicas; without effect with autoscaling."""
        return self._config.num_replicas

    @property
    def user_config(self) -> Any:
        """Argument of `reconfigure`."""
        return self._config.user_config

    @property
    def max_ongoing_requests(self) -> int:
        """Requests that a replica handles at the same time."""
        return self._config.max_ongoing_requests

    @property
    def max_queued_requests(self) -> int:
        """Requests that wait in each caller; -1: no limit."""
        return self._config.max_queued_requests

    @property
    def backpressure_config(self) -> BackpressureConfig:
        """HTTP response to refused requests."""
        return self._config.backpressure_config

    @property
    def ray_actor_options(self) -> dict[str, Any]:
        """Resources and environment of each replica."""
        return dict(self._config.ray_actor_options)

    @property
    def init_args(self) -> tuple[Any, ...]:
        """Positional arguments that `bind` got."""
        return self._init_args

    @property
    def init_kwargs(self) -> dict[str, Any]:
        """Keyword arguments that `bind` got."""
        return self._init_kwargs

    def options(
        self,
        func_or_class: FunctionOrClass | None = None,
        *,
        name: str | None = None,
        **options: object,
    ) -> Deployment:
        """Return a copy with other options; those not given stay as they are.

        Raises the errors of `deployment`.
        """
        changed = copy(self)
        if func_or_class is not None:
            _check_function_or_class(func_or_class)
            changed._func_or_class = func_or_class
        if name is not None:
            changed._name = _checked_name(name)
        if options:
            changed._config = self._config.with_options("Deployment.options", options)
        return changed

    def bind(self, *args: object, **kwargs: object) -> Application:
        """Return an `Application` of this deployment and the arguments of its constructor.

        Applications among the arguments, also in lists, tuples and dicts, become
        `DeploymentHandle`s in the replicas. Raises TypeError if the constructor does not take the
        arguments, and ValueError for arguments of a function.
        """
        self._check_arguments(args, kwargs)
        bound = copy(self)
        bound._init_args = args
        bound._init_kwargs = kwargs
        return Application(bound)

    def _check_arguments(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        if not inspect.isclass(self._func_or_class):
            if args or kwargs:
                raise ValueError(
                    f"`bind()` of `{self._name}` got arguments, but `{self._name}` is a function, "
                    "which is called with each request: use a class to pass arguments once"
                )
            return
        check = call_check(parameter_list(self._func_or_class))
        check(f"bind(): the constructor {self._func_or_class.__qualname__}", args, kwargs)

    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise RuntimeError(
            f"deployment `{self._name}` cannot be called or constructed directly: run it with "
            f"`handle = serve.run({self._name}.bind(...))`, then call `handle.remote(...)`"
        )

    def __repr__(self) -> str:
        return f"Deployment(name={self._name!r})"


class Application:
    """A deployment with the arguments of its constructor: what `run` takes. Made by `bind`."""

    def __init__(self, bound_deployment: Deployment) -> None:
        self._bound_deployment = bound_deployment

    @property
    def deployment(self) -> Deployment:
        """The ingress deployment, with `init_args` and `init_kwargs`."""
        return self._bound_deployment

    def __repr__(self) -> str:
        return f"Application({self._bound_deployment.name}.bind(...))"

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        replacement = replace_applications.get()
        if replacement is not None:
            return replacement(self)
        return super().__reduce_ex__(protocol)


replace_applications: ContextVar[Callable[[Application], tuple[object, ...]] | None] = ContextVar(
    "replace_applications", default=None
)
"""Function whose result is pickled instead of an application; None: itself."""


@overload
def deployment(_func_or_class: FunctionOrClass, /) -> Deployment: ...
@overload
def deployment(
    *, name: str | None = None, **options: object
) -> Callable[[FunctionOrClass], Deployment]: ...
def deployment(
    _func_or_class: FunctionOrClass | None = None, /, *, name: str | None = None, **options: object
) -> Deployment | Callable[[FunctionOrClass], Deployment]:
    """Turn a class or function into a deployment; a decorator with or without options.

    `name` is by default the name of the class or function. The other options are the fields of
    `config.DeploymentConfig`; options that are classes also accept dicts of their fields, and
    `num_replicas` also accepts "auto".

    Raises TypeError for unknown options, wrong types, and objects that are no class or function,
    and ValueError for impossible values and combinations.
    """
    config = DeploymentConfig().with_options("deployment", options)
    if name is not None:
        _checked_name(name)

    def decorate(func_or_class: FunctionOrClass) -> Deployment:
        _check_function_or_class(func_or_class)
        made = object.__new__(Deployment)
        made._func_or_class = func_or_class
        made._name = func_or_class.__name__ if name is None else name
        made._config = config
        made._init_args = ()
        made._init_kwargs = {}
        return made

    return decorate if _func_or_class is None else decorate(_func_or_class)


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise wrong_type("name", name, "a string")
    if not name or "#" in name:
        raise ValueError(f"`name={name!r}` of a deployment is empty or has '#': give another name")
    return name


def _check_function_or_class(value: object) -> None:
    if inspect.isclass(value) or inspect.isfunction(value):
        return
    if isinstance(value, Deployment):
        hint = "it is a deployment already; change it with `.options(...)`"
    elif isinstance(value, (ActorClass, RemoteFunction)):
        hint = "decorate the class or function itself, without `remote`"
    else:
        hint = "decorate a class or function, and pass options by name"
    raise TypeError(f"`deployment` got {value!r}: {hint}")
