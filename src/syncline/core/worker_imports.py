"""Hints for the embedded engine: modules that the workers which start next import or do not use.

Workers are forked from a process that has imported the libraries of the program. With `expect` it
imports further modules before it forks the next worker, once for all workers; the program does not
import them itself. With `without_torch` a worker does not wait for the import of torch, which takes
a second. A worker that lacks a module imports it itself. Other engines ignore the hints.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_expected: dict[str, None] = {}
_without_torch: ContextVar[bool] = ContextVar("without_torch", default=False)


def expect(*modules: str) -> None:
    """Add modules until the engine shuts down; one that cannot be imported is left out."""
    _expected.update(dict.fromkeys(modules))


def expected() -> tuple[str, ...]:
    """Return the names in the order in which they were added."""
    return tuple(_expected)


def forget() -> None:
    """Remove all names."""
    _expected.clear()


@contextmanager
def without_torch() -> Iterator[None]:
    """Context of calls that create tasks or actors which do not use torch."""
    token = _without_torch.set(True)
    try:
        yield
    finally:
        _without_torch.reset(token)


def may_use_torch() -> bool:
    """Return False in a `without_torch` context."""
    return not _without_torch.get()
