"""The options of each task: `dask.annotate(ray_remote_args={...})` and
`compute(ray_remote_args={...})`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import dask
from dask.utils import key_split

from syncline.core.options import TaskOptions
from syncline.core.remote import RemoteFunction
from syncline.util.dask.worker import run_node

ANNOTATION = "ray_remote_args"

_run_node = RemoteFunction(run_node, TaskOptions())


@lru_cache(maxsize=256)
def _named(name: str) -> RemoteFunction:
    return _run_node.options(name=name, num_returns=2)


class Submitters:
    """The remote function that runs a given key. Tasks are named in logs and errors after the front
    part of their key, as Dask does.
    """

    def __init__(self, by_key: Mapping[Any, Mapping[str, Any]], for_all: Mapping[str, Any]) -> None:
        self._by_key = by_key
        self._for_all = dict(for_all)
        self._made: dict[tuple[str, int], tuple[RemoteFunction, int]] = {}

    def of(self, key: Any) -> tuple[RemoteFunction, int, bool]:
        """(remote function, how many values the task has, whether it was given options). ValueError
        for impossible options.
        """
        own = self._by_key.get(key)
        if own is None and not self._for_all:
            return _named(key_split(key)), 1, False
        name = key_split(key)
        made = self._made.get(
            (name, id(own))
        )  # annotations live in the graph, so an id stays what it is
        if made is None:
            made = self._made[(name, id(own))] = self._make(
                key, {"name": name, **self._for_all, **(own or {})}
            )
        return *made, True

    @staticmethod
    def _make(key: Any, options: dict[str, Any]) -> tuple[RemoteFunction, int]:
        count = options.pop("num_returns", None)
        if count is None:
            count = 1
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(
                f"`{ANNOTATION}` of the Dask key {key!r} has `num_returns={count!r}`, but tasks of a graph return one value, or a sequence "
                "of which each item is kept for itself: give the number of its items"
            )
        return _run_node.options(**options, num_returns=count + 1), count


def submitters(dsk: Any, given: Mapping[str, Any] | None) -> Submitters:
    """Collect the annotations of a graph, of the `dask.annotate` around the call, and `given`: what
    is closer to the task wins.
    """
    around = dask.get_annotations().get(ANNOTATION)
    for name, value in ((f"`{ANNOTATION}`", given), (f"the annotation `{ANNOTATION}`", around)):
        if value is not None and not isinstance(value, Mapping):
            raise TypeError(
                f"{name} is a {type(value).__name__} ({value!r}): give a dict of options, such as {{'num_cpus': 2}}"
            )
    return Submitters(_annotations(dsk), {**(given or {}), **(around or {})})


def _annotations(dsk: Any) -> Mapping[Any, Mapping[str, Any]]:
    """The annotated options by key."""
    if hasattr(dsk, "__dask_annotations__"):
        found: Mapping[Any, Mapping[str, Any]] = dsk.__dask_annotations__().get(ANNOTATION, {})
        return found
    by_key: dict[Any, Mapping[str, Any]] = {}
    for layer in getattr(dsk, "layers", {}).values():
        options = (getattr(layer, "annotations", None) or {}).get(ANNOTATION)
        if options:
            by_key.update({key: options(key) if callable(options) else options for key in layer})
    return by_key
