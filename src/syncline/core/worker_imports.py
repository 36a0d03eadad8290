"""A hint for the engine: the worker that is started next does not use torch.

Workers of the embedded engine inherit the libraries that the program has imported, but the import
of torch takes a second. With the hint a worker does not wait for it. A worker that uses torch
anyway imports it itself. Other engines ignore the hint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_without_torch: ContextVar[bool] = ContextVar("without_torch", default=False)


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
