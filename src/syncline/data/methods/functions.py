"""User functions as methods take them: how they run, what they hold, and when they fail.

Covered: the keywords that these methods share (`FunctionOptions`, `WorkerOptions`), and what
becomes of them in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, get_args

from syncline.core.options import ActorOptions, TaskOptions, updated
from syncline.data.plan.compute import (
    ActorPoolStrategy,
    ComputeStrategy,
    Resources,
    TaskPoolStrategy,
)
from syncline.data.plan.nodes import OnError, UserFunction


class NotAFunctionError(TypeError, ValueError):
    """Something that cannot be called in the place of a function."""


class WorkerOptions(TypedDict, total=False):
    """What each task or actor holds. Further options of `remote` may be given by name too."""

    num_cpus: float | None
    """CPUs."""
    num_gpus: float | None
    """GPUs; parts of one are allowed."""
    memory: float | None
    """Bytes that are reserved."""
    label_selector: dict[str, str] | None
    """Labels of the nodes that may run it (clusters only)."""
    fallback_strategy: list[dict[str, Any]] | None
    """What to try if no node has these labels (clusters only)."""
    max_calls: int | None
    """Calls after which a worker is replaced."""
    resources: dict[str, float] | None
    """Custom resources."""
    accelerator_type: str | None
    """Model of the GPUs."""
    runtime_env: dict[str, Any] | None
    """The workers' environment."""


class ProjectOptions(WorkerOptions, total=False):
    """What methods on columns take. They rarely need workers: the executor works on columns itself,
    often while reading.
    """

    compute: ComputeStrategy | str | None
    """For an expression with a class as its function: an `ActorPoolStrategy`."""
    concurrency: int | None
    """The most tasks at once; None for as many as there is room for."""


class FunctionOptions(WorkerOptions, total=False):
    """What methods that call a function of the program's take."""

    compute: ComputeStrategy | str | None
    """A `TaskPoolStrategy` for a function, an `ActorPoolStrategy` for a class, which is constructed
    once per actor.
    """
    concurrency: int | tuple[int, int] | tuple[int, int, int] | None
    """Older form of `compute`: the most tasks at once, or for a class the number of actors or (min,
    max[, initial]).
    """
    fn_args: Iterable[Any] | None
    """Positional arguments after the row or batch."""
    fn_kwargs: Mapping[str, Any] | None
    """Keyword arguments."""
    fn_constructor_args: Iterable[Any] | None
    """Positional arguments of the class."""
    fn_constructor_kwargs: Mapping[str, Any] | None
    """Keyword arguments of the class."""
    ray_remote_args_fn: Callable[[], dict[str, Any]] | None
    """Gives further options of `remote` whenever a worker starts."""
    timeout_s: float | None
    """Seconds that one call may take; None for no limit."""
    on_error: OnError
    """"raise" ends the execution when the function fails or exceeds its time; "skip" leaves out the
    rows of that call and counts them.
    """


WORKER: WorkerOptions = dict.fromkeys(WorkerOptions.__annotations__)  # type: ignore[assignment]
"""Keywords of workers, with their defaults."""
PROJECT: ProjectOptions = {**WORKER, "compute": None, "concurrency": None}
"""Keywords of methods on columns, with their defaults."""
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
"""Keywords of methods that call a function, with their defaults."""


def user_function(function: Any, options: Mapping[str, Any]) -> UserFunction:
    """The function with all that it takes to call it; `options` are `FunctionOptions` and options
    of `remote`.

    TypeError and ValueError for arguments that are wrong, or do not go together.
    """
    _check_callable(function)
    given: dict[str, Any] = {**FUNCTION, **options}
    for name in ("fn_constructor_args", "fn_constructor_kwargs"):
        if given[name] is not None and not isinstance(function, type):
            raise ValueError(
                f"{name} are for the constructor of a class, but {function!r} is not a class: use fn_args or fn_kwargs"
            )
    for name in ("fn_kwargs", "fn_constructor_kwargs"):
        if given[name] is not None and not isinstance(given[name], Mapping):
            raise TypeError(
                f"{name}={given[name]!r} is of type {type(given[name]).__name__}: give a dict of arguments by name"
            )
    return UserFunction(
        function=function,
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


def resources_of(options: Mapping[str, Any], *, of_actors: bool = False) -> Resources:
    """What each task or actor holds: all options but those of the function. TypeError and
    ValueError where `remote` would raise them.
    """
    own = FUNCTION.keys() - WORKER.keys()
    given = {
        name: value for name, value in options.items() if value is not None and name not in own
    }
    if of_actors:
        updated(ActorOptions(), given)
    else:
        updated(TaskOptions(), given)
    named = {name: given.pop(name, None) for name in ("num_cpus", "num_gpus", "memory")}
    return Resources(**named, options=given)


def strategy(function: Any, compute: Any, concurrency: Any) -> ComputeStrategy:
    """How a function or class runs: tasks for functions, actors for classes, as many as `compute`
    or the older `concurrency` says.
    """
    is_class = isinstance(function, type)
    chosen = _checked_compute(compute)
    if chosen is None:
        return _of_concurrency(concurrency, is_class)
    if is_class and isinstance(chosen, TaskPoolStrategy):
        raise ValueError(
            f"{function.__name__} is a class, whose objects live in actors, but compute={chosen}: give an ActorPoolStrategy"
        )
    if not is_class and isinstance(chosen, ActorPoolStrategy):
        raise ValueError(
            f"{function!r} is not a class, but compute={chosen} makes actors: give a class or a TaskPoolStrategy"
        )
    return chosen


def strategy_of_project(compute: Any, concurrency: Any) -> ComputeStrategy | None:
    """How expressions run, where the program says: an `ActorPoolStrategy` for those with a
    class.
    """
    return _at_most(concurrency) if compute is None else _checked_compute(compute)


def _checked_compute(compute: Any) -> ComputeStrategy | None:
    named = {"tasks": TaskPoolStrategy(), "actors": ActorPoolStrategy(min_size=1)}
    if isinstance(compute, str) and compute in named:
        return named[compute]
    if compute is not None and not isinstance(compute, ComputeStrategy):
        raise TypeError(
            f"compute={compute!r} is of type {type(compute).__name__}: give a TaskPoolStrategy or an ActorPoolStrategy"
        )
    return compute


def _at_most(concurrency: Any) -> TaskPoolStrategy | None:
    if isinstance(concurrency, tuple):
        raise ValueError(
            f"concurrency={concurrency} sizes a pool of actors, which only classes have: give an int, the most tasks at once"
        )
    return None if concurrency is None else TaskPoolStrategy(size=concurrency)


def _of_concurrency(concurrency: Any, is_class: bool) -> ComputeStrategy:
    if not is_class:
        return _at_most(concurrency) or TaskPoolStrategy()
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
            f"concurrency={concurrency!r} is no number of actors: give an int, (min, max) or (min, max, initial)"
        )
    return ActorPoolStrategy(
        min_size=concurrency[0],
        max_size=concurrency[1],
        initial_size=concurrency[2] if len(concurrency) == 3 else None,
    )


def _check_callable(function: Any) -> None:
    if not callable(function):
        raise NotAFunctionError(
            f"{function!r} is of type {type(function).__name__}, which cannot be called: give a function or a class"
        )
    if isinstance(function, type) and not any(
        "__call__" in vars(base) for base in function.__mro__
    ):
        raise NotAFunctionError(
            f"objects of the class {function.__name__} cannot be called: give it a method __call__ for a row or batch"
        )


def _checked_timeout(timeout_s: Any) -> float | None:
    if timeout_s is not None and (
        isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0
    ):
        raise ValueError(
            f"timeout_s={timeout_s!r} is no time limit: give a number of seconds above 0, or None for no limit"
        )
    return None if timeout_s is None else float(timeout_s)


def _checked_policy(on_error: Any) -> OnError:
    if on_error not in get_args(OnError):
        raise ValueError(
            f"on_error={on_error!r} is not known: choose 'raise', or 'skip' to leave out the rows that fail"
        )
    policy: OnError = on_error
    return policy
