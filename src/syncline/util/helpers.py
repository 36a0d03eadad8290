"""`as_completed` and `map_unordered`: results of tasks as they become ready."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from syncline.core import api
from syncline.core.refs import AnyRef

CHUNK_SIZE = 10
"""Results to wait for together."""
BACKPRESSURE_SIZE = 100
"""Tasks of `map_unordered` that may be unfinished."""


def as_completed(
    refs: Sequence[AnyRef],
    *,
    chunk_size: int = CHUNK_SIZE,
    yield_obj_refs: bool = False,
    **kwargs: object,
) -> Iterator[Any]:
    """Yield the values of references as they become ready.

    Args:
        refs: References.
        chunk_size: Number of values to wait for together; with 1, each is yielded immediately.
        yield_obj_refs: Yield references that are ready instead of values.
        **kwargs: Other arguments of `wait`: `timeout` and `fetch_local`.
    """
    _check(chunk_size, kwargs)
    return _completed(list(refs), chunk_size, yield_obj_refs, kwargs)


def map_unordered(
    fn: object,
    items: Iterable[object],
    *,
    backpressure_size: int | None = BACKPRESSURE_SIZE,
    chunk_size: int = CHUNK_SIZE,
    yield_obj_refs: bool = False,
    **kwargs: object,
) -> Iterator[Any]:
    """Call the remote function `fn` for each item, and yield results as they become ready.

    Args:
        fn: A remote function.
        items: Arguments; they are read as calls finish.
        backpressure_size: Most calls that are unfinished at a time; None for no limit.
        chunk_size, yield_obj_refs, **kwargs: As for `as_completed`.
    """
    _check(chunk_size, kwargs)
    if backpressure_size is not None and backpressure_size < 1:
        raise ValueError(
            f"`backpressure_size={backpressure_size}` is below 1: pass 1 or more, or None."
        )
    return _mapped(fn, items, backpressure_size, chunk_size, yield_obj_refs, kwargs)


def _mapped(
    fn: Any,
    items: Iterable[object],
    most: int | None,
    chunk_size: int,
    yield_obj_refs: bool,
    options: dict[str, Any],
) -> Iterator[object]:
    refs: list[AnyRef] = []
    for item in items:
        refs.append(fn.remote(item))
        if most is not None and len(refs) >= most:
            found, refs = _next(refs, chunk_size, yield_obj_refs, options)
            yield from found
    yield from _completed(refs, chunk_size, yield_obj_refs, options)


def _completed(
    refs: list[AnyRef], chunk_size: int, yield_obj_refs: bool, options: dict[str, Any]
) -> Iterator[object]:
    while refs:
        found, refs = _next(refs, chunk_size, yield_obj_refs, options)
        yield from found


def _next(
    refs: list[AnyRef], chunk_size: int, yield_obj_refs: bool, options: dict[str, Any]
) -> tuple[Iterable[object], list[AnyRef]]:
    ready, rest = api.wait(refs, num_returns=min(chunk_size, len(refs)), **options)
    return ready if yield_obj_refs else api.get(ready), rest


def _check(chunk_size: int, options: dict[str, Any]) -> None:
    if chunk_size < 1:
        raise ValueError(f"`chunk_size={chunk_size}` is below 1: pass 1 or more.")
    if "num_returns" in options:
        raise ValueError("`num_returns` is set by `chunk_size`: pass that instead.")
