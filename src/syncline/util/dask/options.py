"""Options of each task, from `dask.annotate` and `compute`, both with `ray_remote_args=…`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import dask
from dask.utils import key_split

from syncline.core.options import TaskOptions
from syncline.core.remote import RemoteFunction
from syncline.util.dask.graph import Key
from syncline.util.dask.worker import run_node

ANNOTATION = "ray_remote_args"

_run_node = RemoteFunction(run_node, TaskOptions())


@lru_cache(maxsize=256)
def _named(name: str) -> RemoteFunction:
    return _run_node.options(name=name, num_returns=2)


class Submitters:
    """Chooses the remote function of each key.

    Logs and errors name a task after the first part of its key, as Dask does.
    """

    def __init__(
        self, by_key: Mapping[Key, Mapping[str, object]], for_all: Mapping[str, object]
    ) -> None:
        self._by_key = by_key
        self._for_all = dict(for_all)
        self._made: dict[tuple[str, int], tuple[RemoteFunction, int]] = {}

    def of(self, key: object) -> tuple[RemoteFunction, int, bool]:
        """Return (remote function, number of values, True if the task has options).

        Raises:
            ValueError: The options are invalid.
        """
        own = self._by_key.get(key)
        if own is None and not self._for_all:
            return _named(key_split(key)), 1, False
        name = key_split(key)
        # Annotations are part of the graph, so an id stays valid.
        made = self._made.get((name, id(own)))
        if made is None:
            made = self._made[(name, id(own))] = self._make(
                key, {"name": name, **self._for_all, **(own or {})}
            )
        return *made, True

    @staticmethod
    def _make(key: object, options: dict[str, object]) -> tuple[RemoteFunction, int]:
        count = options.pop("num_returns", None)
        if count is None:
            count = 1
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(
                f"`{ANNOTATION}` of the Dask key {key!r} has `num_returns={count!r}`, but a task "
                "returns one value, or a sequence whose items are stored separately: pass the "
                "number of items."
            )
        return _run_node.options(**options, num_returns=count + 1), count


def submitters(dsk: object, given: Mapping[str, object] | None) -> Submitters:
    """Collect the options of a graph's annotations, the enclosing `dask.annotate`, and `given`.

    Options closer to the task override the others.
    """
    around = dask.get_annotations().get(ANNOTATION)
    for name, value in ((f"`{ANNOTATION}`", given), (f"the annotation `{ANNOTATION}`", around)):
        if value is not None and not isinstance(value, Mapping):
            raise TypeError(
                f"{name} is a {type(value).__name__} ({value!r}): pass a dict of options, such as "
                "{'num_cpus': 2}."
            )
    return Submitters(_annotations(dsk), {**(given or {}), **(around or {})})


def _annotations(dsk: object) -> Mapping[Key, Mapping[str, object]]:
    """Return the annotated options by key."""
    if hasattr(dsk, "__dask_annotations__"):
        found: Mapping[Key, Mapping[str, object]] = dsk.__dask_annotations__().get(ANNOTATION, {})
        return found
    by_key: dict[Key, Mapping[str, object]] = {}
    for layer in getattr(dsk, "layers", {}).values():
        options = (getattr(layer, "annotations", None) or {}).get(ANNOTATION)
        if options:
            by_key.update({key: options(key) if callable(options) else options for key in layer})
    return by_key
