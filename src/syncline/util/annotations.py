"""Decorators that tell how stable a name is: `PublicAPI`, `DeveloperAPI` and `Deprecated`.

They mark the object, add a sentence to its docstring, and change nothing else; `Deprecated` may
also warn at each use.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar, overload

F = TypeVar("F")

_MARK = "_annotated"
_TYPE = "_annotated_type"
_STABILITIES = ("stable", "beta", "alpha")


class AnnotationType(Enum):
    """The decorator that marked an object."""

    PUBLIC_API = "PublicAPI"
    DEVELOPER_API = "DeveloperAPI"
    DEPRECATED = "Deprecated"
    UNKNOWN = "Unknown"


class RayDeprecationWarning(DeprecationWarning):
    """Warning of a deprecated name. Unlike its base class, it is shown by default."""


warnings.filterwarnings("default", category=RayDeprecationWarning)


@overload
def PublicAPI(target: F, /) -> F: ...
@overload
def PublicAPI(*, stability: str = "stable", **others: object) -> Callable[[F], F]: ...
def PublicAPI(*args: object, **kwargs: object) -> object:
    """Mark a name as public: `@PublicAPI` or `@PublicAPI(stability="beta", api_group="Others")`.

    Raises ValueError for a stability other than stable, beta or alpha.
    """
    if _is_bare(args, kwargs):
        return PublicAPI()(args[0])
    stability = kwargs.get("stability", "stable")
    if stability not in _STABILITIES:
        raise ValueError(
            f"`stability={stability!r}` is unknown: use one of {', '.join(_STABILITIES)}."
        )

    def mark(target: F) -> F:
        if stability != "stable":
            _append(target, f"This name is public in {stability} and may change.")
        _mark(target, AnnotationType.PUBLIC_API)
        return target

    return mark


@overload
def DeveloperAPI(target: F, /) -> F: ...
@overload
def DeveloperAPI(**others: object) -> Callable[[F], F]: ...
def DeveloperAPI(*args: object, **kwargs: object) -> object:
    """Mark a name as meant for developers of libraries: `@DeveloperAPI` or `@DeveloperAPI()`."""
    if _is_bare(args, kwargs):
        return DeveloperAPI()(args[0])

    def mark(target: F) -> F:
        _append(target, "This name is for developers and may change between minor releases.")
        _mark(target, AnnotationType.DEVELOPER_API)
        return target

    return mark


def Deprecated(*args: Any, **kwargs: Any) -> Any:
    """Mark a name as deprecated: `@Deprecated` or `@Deprecated(message="Use f.", warning=True)`.

    With `warning`, each call, or each instance of a class, warns with `RayDeprecationWarning`.
    """
    if _is_bare(args, kwargs):
        return Deprecated()(args[0])
    message = kwargs.pop("message", "This name is deprecated and will be removed.")
    warns = kwargs.pop("warning", False)
    if kwargs:
        raise ValueError(
            f"`Deprecated` takes `message` and `warning`, but got {', '.join(sorted(kwargs))}."
        )

    def mark(target: Any) -> Any:
        _append(target, message)
        _mark(target, AnnotationType.DEPRECATED)
        if not warns:
            return target
        if isinstance(target, type):
            target.__init__ = _warning(target.__init__, target, message)  # type: ignore[misc]
            return target
        return _warning(target, target, message)

    return mark


def _warning(function: Callable[..., Any], target: Any, message: str) -> Callable[..., Any]:
    name = f"{target.__module__}.{target.__qualname__}"

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        warnings.warn(f"{name} is deprecated. {message}", RayDeprecationWarning, stacklevel=2)
        return function(*args, **kwargs)

    return call


def _is_bare(args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
    """Return True for a decorator without parentheses."""
    return len(args) == 1 and not kwargs and callable(args[0])


def _append(target: object, sentence: str) -> None:
    target.__doc__ = f"{(target.__doc__ or '').rstrip()}\n\n    {sentence}\n"


def _mark(target: Any, kind: AnnotationType) -> None:
    setattr(target, _MARK, target.__name__)
    setattr(target, _TYPE, kind)


def _is_annotated(target: object) -> bool:
    """Return True if the object itself, not a base class, is marked."""
    return getattr(target, _MARK, None) == getattr(target, "__name__", "")


def _get_annotation_type(target: object) -> str | None:
    """Return the name of the decorator that marked an object; None if none did."""
    if not _is_annotated(target):
        return None
    kind: AnnotationType = getattr(target, _TYPE)
    return kind.value
