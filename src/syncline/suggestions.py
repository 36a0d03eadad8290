"""Suggestions for misspelled names: each error about an unknown keyword argument, resource, column,
metric or other name ends in the sentence of `did_you_mean`.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, TypeVar

C = TypeVar("C", bound=type)

DIRECT_TRANSPORT = (
    "Arrays and tensors pass between processes through shared memory without a copy: return them "
    "from tasks as usual. Between GPUs of different workers, use `torch.distributed`, which "
    "`syncline.train.torch.TorchTrainer` sets up, or `syncline.util.collective`."
)
"""Advice for programs that use Ray Direct Transport."""

_LEAST_SIMILAR = 0.6
_STANDARD_RESOURCES = {
    **dict.fromkeys(("cpu", "cpus", "num_cpu", "num_cpus"), "CPU"),
    **dict.fromkeys(("gpu", "gpus", "num_gpu", "num_gpus"), "GPU"),
    "memory": "memory",
    "object_store_memory": "object_store_memory",
}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` with the most similar known name, regardless of upper and lower
    case; an empty string if none is similar.
    """
    by_lower = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=_LEAST_SIMILAR)
    return f" Did you mean {by_lower[near[0]]!r}?" if near else ""


def unknown_argument(
    function: str, name: str, known: Iterable[str], *, shown: Iterable[str] | None = None
) -> TypeError:
    """Return the error for an unknown keyword argument; `shown` are the names to list, by default
    all.
    """
    known = [other for other in known if not other.startswith("_")]
    listed = ", ".join(known if shown is None else shown) or "none"
    return TypeError(
        f"{function} takes no argument {name!r}.{did_you_mean(name, known)} Arguments: {listed}."
    )


def missing_attribute(module: ModuleType, name: str) -> AttributeError:
    """Return the error of a module's `__getattr__`."""
    hint = "" if name.startswith("__") else did_you_mean(name, dir(module))
    text = f"module {module.__name__!r} has no attribute {name!r}"
    return AttributeError(f"{text}.{hint}" if hint else text)


def suggest_arguments(cls: C) -> C:
    """Let the constructor answer an unknown keyword argument with the nearest one, which Python
    does from version 3.13 on. A class decorator.
    """
    original: Callable[..., None] = cls.__init__  # type: ignore[misc]  # of the class itself
    if dataclasses.is_dataclass(cls):
        names = tuple(each.name for each in dataclasses.fields(cls) if each.init)
    else:
        code = original.__code__
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(original)
    def __init__(self: object, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in names:
                raise unknown_argument(cls.__name__, name, names)
        original(self, *args, **kwargs)

    cls.__init__ = __init__  # type: ignore[misc]
    return cls


def check_resource_names(argument: str, names: Iterable[object]) -> None:
    """Raise ValueError for a misspelled standard resource, which would name a custom resource that
    no node has.
    """
    for name in names:
        meant = _STANDARD_RESOURCES.get(name.lower()) if isinstance(name, str) else None
        if meant not in (None, name):
            raise ValueError(
                f"`{argument}` has the unknown resource {name!r}. Did you mean {meant!r}? Names of "
                "resources are case-sensitive."
            )
