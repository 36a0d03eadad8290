"""Options of the methods that call user functions: how a function runs, which resources it holds
and what happens when it fails.

Covered: the shared keywords (`WorkerOptions`, `ProjectOptions`, `FunctionOptions`) with their
defaults, their checks, and the `UserFunction` that they become in a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypedDict, get_args

from syncline.core.options import ActorOptions, TaskOptions, updated
from syncline.data.plan.compute import (
    ActorPoolStrategy,
    ComputeStrategy,
    Resources,
    TaskPoolStrategy,
)
from syncline.data.plan.nodes import OnError, UserFunction

Options: TypeAlias = Mapping[str, Any]
"""Keyword arguments by name: those of one of the TypedDicts below, and options of `remote`."""
Arguments: TypeAlias = dict[str, Any]
"""Keyword arguments of a function or class of another library, by name."""
RemoteArgs: TypeAlias = Arguments
"""Options of `remote` by name."""


class NotAFunctionError(TypeError, ValueError):
    """Raised for an argument that is not callable where a function is required."""


class WorkerOptions(TypedDict, total=False):
    """Resources of each task or actor. Other options of `remote` are accepted by name too."""

    num_cpus: float | None
    """CPUs."""
    num_gpus: float | None
    """GPUs; fractions are allowed."""
    memory: float | None
    """Bytes to reserve."""
    label_selector: dict[str, str] | None
    """Labels of the nodes that may run the worker (clusters only)."""
    fallback_strategy: list[RemoteArgs] | None
    """Options to try if no node has these labels (clusters only)."""
    max_calls: int | None
    """Calls after which a worker is replaced."""
    resources: dict[str, float] | None
    """Custom resources."""
    accelerator_type: str | None
    """Model of the GPUs."""
    runtime_env: RemoteArgs | None
    """Environment of the workers."""


class ProjectOptions(WorkerOptions, total=False):
    """Options of the methods that work on columns. Few of these methods need workers: the executor
    computes columns itself, often while it reads them.
    """

    compute: ComputeStrategy | str | None
    """An `ActorPoolStrategy` for an expression whose function is a class."""
    concurrency: int | None
    """Maximum number of concurrent tasks; None for no limit."""


class FunctionOptions(WorkerOptions, total=False):
    """Options of the methods that call a user function."""

    compute: ComputeStrategy | str | None
    """A `TaskPoolStrategy` for a function; an `ActorPoolStrategy` for a class, which is constructed
    once per actor.
    """
    concurrency: int | tuple[int, int] | tuple[int, int, int] | None
    """Older form of `compute`: the maximum number of concurrent tasks; for a class the number of
    actors, (min, max) or (min, max, initial).
    """
    fn_args: Iterable[Any] | None
    """Positional arguments after the row or batch."""
    fn_kwargs: Options | None
    """Keyword arguments."""
    fn_constructor_args: Iterable[Any] | None
    """Positional arguments of the class."""
    fn_constructor_kwargs: Options | None
    """Keyword arguments of the class."""
    ray_remote_args_fn: Callable[[], RemoteArgs] | None
    """Returns more options of `remote`; called whenever a worker starts."""
    timeout_s: float | None
    """Seconds that one call may take; None for no limit."""
    on_error: OnError
    """"raise" ends the execution when the function fails or times out; "skip" drops the rows of
    that call and counts them.
    """


WORKER: WorkerOptions = dict.fromkeys(WorkerOptions.__annotations__)  # type: ignore[assignment]
"""Defaults of `WorkerOptions`."""
PROJECT: ProjectOptions = {**WORKER, "compute": None, "concurrency": None}
"""Defaults of `ProjectOptions`."""
FUNCTION: FunctionOptions = {
    "compute": None,
    "fn_args": None,
    "fn_kwargs": None,
    "fn_constructor_args": None,
    "fn_constructor_kwargs": None,
    "concurrency": None,
    **WORKER,
    "ray_remote_args_fn": None,
    "timeout_s": None,
    "on_error": "raise",
}
"""Defaults of `FunctionOptions`."""


def user_function(function: object, options: Options) -> UserFunction:
    """Return the function with the arguments and resources of its calls.

    Args:
        function: A function, or a class with `__call__`.
        options: `FunctionOptions` and options of `remote`.

    Raises:
        TypeError, ValueError: An argument is wrong, or two arguments exclude each other.
    """
    checked = _checked_callable(function)
    given = {**FUNCTION, **options}
    for name in ("fn_constructor_args", "fn_constructor_kwargs"):
        if given[name] is not None and not isinstance(function, type):
            raise ValueError(
                f"{name} are for the constructor of a class, but {function!r} is not a class: "
                "use fn_args or fn_kwargs"
            )
    for name in ("fn_kwargs", "fn_constructor_kwargs"):
        if given[name] is not None and not isinstance(given[name], Mapping):
            raise TypeError(
                f"{name}={given[name]!r} is of type {type(given[name]).__name__}: "
                "pass a dict of arguments by name"
            )
    return UserFunction(
        function=checked,
        args=tuple(given["fn_args"] or ()),
        kwargs=dict(given["fn_kwargs"] or {}),
        constructor_args=tuple(given["fn_constructor_args"] or ()),
        constructor_kwargs=dict(given["fn_constructor_kwargs"] or {}),
        compute=strategy(function, given["compute"], given["concurrency"]),
        resources=resources_of(options, of_actors=isinstance(function, type)),
        resources_fn=given["ray_remote_args_fn"],
        timeout_s=_checked_timeout(given["timeout_s"]),
        on_error=_checked_policy(given["on_error"]),
    )


def resources_of(options: Options, *, of_actors: bool = False) -> Resources:
    """Return the resources of each task or actor: all options that are not those of the function.

    Raises:
        TypeError, ValueError: As `remote` raises them.
    """
    own = FUNCTION.keys() - WORKER.keys()
    return checked_resources(
        {name: value for name, value in options.items() if value is not None and name not in own},
        of_actors=of_actors,
    )


def checked_resources(given: Options, *, of_actors: bool = False) -> Resources:
    """Return options of `remote` as resources. Raise the errors of `remote`."""
    if of_actors:
        updated(ActorOptions(), given)
    else:
        updated(TaskOptions(), given)
    named = ("num_cpus", "num_gpus", "memory")
    return Resources(
        **{name: given.get(name) for name in named},
        options={name: value for name, value in given.items() if name not in named},
    )


def strategy(function: object, compute: object, concurrency: object) -> ComputeStrategy:
    """Return how a function or class runs: functions as tasks and classes in actors, as many as
    `compute` or the older `concurrency` allows.
    """
    is_class = isinstance(function, type)
    chosen = _checked_compute(compute)
    if chosen is None:
        return _strategy_of_concurrency(concurrency, is_class)
    if isinstance(function, type) and isinstance(chosen, TaskPoolStrategy):
        raise ValueError(
            f"{function.__name__} is a class, whose instances live in actors, but "
            f"compute={chosen}: pass an ActorPoolStrategy"
        )
    if not is_class and isinstance(chosen, ActorPoolStrategy):
        raise ValueError(
            f"{function!r} is not a class, but compute={chosen} starts actors: "
            "pass a class or a TaskPoolStrategy"
        )
    return chosen


def project_strategy(compute: object, concurrency: object) -> ComputeStrategy | None:
    """Return how expressions run; None lets the executor choose."""
    return _task_limit(concurrency) if compute is None else _checked_compute(compute)


def _checked_compute(compute: object) -> ComputeStrategy | None:
    if compute == "tasks":
        return TaskPoolStrategy()
    if compute is not None and not isinstance(compute, ComputeStrategy):
        raise ValueError(
            f"compute={compute!r} is of type {type(compute).__name__}: "
            "pass a TaskPoolStrategy or an ActorPoolStrategy"
        )
    return compute


def _task_limit(concurrency: object) -> TaskPoolStrategy | None:
    if isinstance(concurrency, tuple):
        raise ValueError(
            f"concurrency={concurrency} is the size of a pool of actors, which only classes have: "
            "pass an int, the maximum number of concurrent tasks"
        )
    return None if concurrency is None else TaskPoolStrategy(size=concurrency)  # type: ignore[arg-type]  # it checks the type


def _strategy_of_concurrency(concurrency: object, is_class: bool) -> ComputeStrategy:
    if not is_class:
        return _task_limit(concurrency) or TaskPoolStrategy()
    if concurrency is None:
        return ActorPoolStrategy(min_size=1)
    if isinstance(concurrency, int):
        return ActorPoolStrategy(size=concurrency)
    if (
        not isinstance(concurrency, tuple)
        or len(concurrency) not in (2, 3)
        or not all(isinstance(size, int) for size in concurrency)
    ):
        raise ValueError(
            f"concurrency={concurrency!r} is not a number of actors: "
            "pass an int, (min, max) or (min, max, initial)"
        )
    return ActorPoolStrategy(
        min_size=concurrency[0],
        max_size=concurrency[1],
        initial_size=concurrency[2] if len(concurrency) == 3 else None,
    )


def _checked_callable(function: object) -> Callable[..., Any]:
    if not callable(function):
        raise NotAFunctionError(
            f"{function!r} is of type {type(function).__name__}, which is not callable: "
            "pass a function or a class"
        )
    if isinstance(function, type) and not any(
        "__call__" in vars(base) for base in function.__mro__
    ):
        raise NotAFunctionError(
            f"instances of the class {function.__name__} are not callable: "
            "add a method __call__ that takes a row or batch"
        )
    return function


def _checked_timeout(timeout_s: object) -> float | None:
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise ValueError(
            f"timeout_s={timeout_s!r} is not a time limit: "
            "pass a number of seconds above 0, or None for no limit"
        )
    return float(timeout_s)


def _checked_policy(on_error: OnError) -> OnError:
    if on_error not in get_args(OnError):
        raise ValueError(
            f"on_error={on_error!r} is not a policy: "
            "choose 'raise', or 'skip' to drop the rows that fail"
        )
    return on_error
