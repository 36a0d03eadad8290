"""Forms of a key's value in the program: an object, several objects, a persisted or a plain value.

`Persisted` is what Dask calls a future: in a graph it represents its key, and the scheduler knows
the value of the key. The object is freed when the last collection that holds it is gone.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dask._task_spec import Alias, GraphNode, Task, TaskRef
from dask.sizeof import sizeof

from syncline.core import api
from syncline.core.refs import AnyRef, ObjectRef

STORED_BYTES = 16_384
"""Larger values of the graph are put into the object store once instead of sent with every task."""


class Persisted(TaskRef):
    """A key whose value is in the object store."""

    __dask_future__ = True

    def __init__(self, key: object, ref: AnyRef) -> None:
        super().__init__(key)
        self.ref = ref
        _alive[key] = self

    def __dask_tokenize__(self) -> tuple[str, object, str]:
        return (type(self).__name__, self.key, self.ref.hex())

    def __hash__(self) -> int:
        return hash((self.key, self.ref))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Persisted) and (other.key, other.ref) == (self.key, self.ref)

    def __reduce__(self) -> tuple[object, ...]:
        return (Persisted, (self.key, self.ref))

    def __repr__(self) -> str:
        return f"Persisted({self.key!r}, {self.ref!r})"


_alive: weakref.WeakValueDictionary[Any, Persisted] = weakref.WeakValueDictionary()


def persisted(key: object) -> Persisted | None:
    """Return the living persisted value of a key in this process; None if there is none."""
    return _alive.get(key)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A value in one object."""

    ref: AnyRef


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A sequence with one object per item, so that a task fetches only the items that it uses."""

    refs: tuple[AnyRef, ...]
    kind: type


def normalized(value: object) -> Any:
    """Return a value of the graph, or of a callback, in one of the forms of this module."""
    if isinstance(value, (Stored, Parts)):
        return value
    if isinstance(value, Persisted):
        return Stored(ref=value.ref)
    if isinstance(value, ObjectRef):
        return Stored(ref=value)
    if isinstance(value, (int, float, str, type(None))) or sizeof(value) <= STORED_BYTES:
        return value
    return Stored(ref=api.put(value))


def as_arguments(value: object) -> tuple[tuple[Any, ...], type | None]:
    """Return the task arguments for a value, and for `Parts` the type of the sequence."""
    if isinstance(value, Stored):
        return (value.ref,), None
    if isinstance(value, Parts):
        return value.refs, value.kind
    return (value,), None


def for_callbacks(value: object) -> Any:
    """Return what callbacks see of a value: a reference, references to its parts, or itself."""
    if isinstance(value, Parts):
        return list(value.refs)
    return value.ref if isinstance(value, Stored) else value


def fetch(values: Sequence[object]) -> list[Any]:
    """Return the values themselves; fetches all stored ones together."""
    refs = [
        ref
        for value in values
        if isinstance(value, (Stored, Parts))
        for ref in as_arguments(value)[0]
    ]
    fetched = iter(api.get(refs))
    return [_taken(value, fetched) for value in values]


def _taken(value: Any, fetched: Any) -> Any:
    if isinstance(value, Parts):
        return value.kind([next(fetched) for _ in value.refs])
    return next(fetched) if isinstance(value, Stored) else value


def without_a_task(node: GraphNode, values: Mapping[Any, object]) -> tuple[object] | None:
    """Return the value of a node that needs no task: an alias, or one item of `Parts`.

    Returns None if the node has to run.
    """
    if isinstance(node, Alias):
        return (values[node.target],)
    if (
        not isinstance(node, Task)
        or node.func is not operator.getitem
        or node.kwargs
        or len(node.args) != 2
    ):
        return None
    source, index = node.args
    parts = (
        values.get(source.target if isinstance(source, Alias) else source.key)
        if isinstance(source, (Alias, TaskRef))
        else None
    )
    if (
        not isinstance(parts, Parts)
        or type(index) is not int
        or not -len(parts.refs) <= index < len(parts.refs)
    ):
        return None
    return (Stored(ref=parts.refs[index]),)
