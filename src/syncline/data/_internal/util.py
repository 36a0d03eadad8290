"""The functions of `ray.data._internal.util` that sources and sinks of other projects call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from syncline.data.io import filesystem as filesystems
from syncline.optional import load
from syncline.storage.retries import RetryPolicy

T = TypeVar("T")

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB


def _check_import(obj: object, *, module: str, package: str) -> None:
    """Raise ImportError with an install hint if `obj` needs a module that is not installed."""
    load(module, purpose=f"`{type(obj).__name__}`", install=package)


def call_with_retry(
    f: Callable[[], T],
    description: str,
    *,
    match: Sequence[str] | None = None,
    max_attempts: int = 10,
    max_backoff_s: float = 32,
) -> T:
    """Return the result of `f`; retry it after transient errors.

    Args:
        f: The call. Its last error is raised unchanged.
        description: The operation, for the log.
        match: Texts of transient errors; None for every error.
        max_attempts: Number of calls.
        max_backoff_s: Maximum seconds between two calls.
    """
    policy = RetryPolicy(attempts=max_attempts, longest_pause_s=max_backoff_s)
    return filesystems.call_with_retry(f, description, _patterns(match), policy)


def iterate_with_retry(
    iterable_factory: Callable[[], Iterable[T]],
    description: str,
    *,
    match: Sequence[str] | None = None,
    max_attempts: int = 10,
    max_backoff_s: float = 32,
) -> Iterator[T]:
    """Yield the values of an iterable; after a transient error, make it again and skip the values
    that were already yielded. Arguments as in `call_with_retry`.
    """
    policy = RetryPolicy(attempts=max_attempts, longest_pause_s=max_backoff_s)
    return filesystems.iterate_with_retry(
        lambda: iter(iterable_factory()), description, _patterns(match), policy
    )


def _patterns(match: Sequence[str] | None) -> tuple[str, ...]:
    """Return the patterns of transient errors; the empty text is part of every error's."""
    return ("",) if match is None else tuple(match)
