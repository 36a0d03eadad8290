"""Where the value of a key is, as the program knows it: in the object store, as items of it there,
or here.

What a task gets as an argument, and what the caller gets in the end, is made of these.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dask._task_spec import Alias, GraphNode, Task, TaskRef
from dask.sizeof import sizeof

from syncline.core import api
from syncline.core.refs import ObjectRef
from syncline.util.dask.persist import Persisted

STORED_BYTES = 16_384
"""Values of the graph itself that are larger than this are put into the object store once instead
of travelling with every task.
"""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One object."""

    ref: ObjectRef[Any]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A sequence whose items are one object each, so that a task that takes one item fetches no
    other.
    """

    refs: tuple[ObjectRef[Any], ...]
    kind: type


def where(value: Any) -> Any:
    """A value of the graph, or what a callback gave instead of running a task, as one of the forms
    of this module.
    """
    if isinstance(value, (Stored, Parts)):
        return value
    if isinstance(value, Persisted):
        return Stored(ref=value.ref)
    if isinstance(value, ObjectRef):
        return Stored(ref=value)
    if isinstance(value, (int, float, str, type(None))) or sizeof(value) <= STORED_BYTES:
        return value
    return Stored(ref=api.put(value))


def as_arguments(value: Any) -> tuple[tuple[Any, ...], type | None]:
    """The arguments that carry a value to a task, and the type of sequence to make of them where it
    is one in parts.
    """
    if isinstance(value, Stored):
        return (value.ref,), None
    if isinstance(value, Parts):
        return value.refs, value.kind
    return (value,), None


def as_seen(value: Any) -> Any:
    """What callbacks are shown of a value: its reference, or references to its parts, or itself."""
    if isinstance(value, Parts):
        return list(value.refs)
    return value.ref if isinstance(value, Stored) else value


def fetch(values: Sequence[Any]) -> list[Any]:
    """The values themselves; those in the object store are waited for together."""
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


def without_a_task(node: GraphNode, values: dict[Any, Any]) -> tuple[Any] | None:
    """The value of a node that only names another value or takes one part of it; None where the
    node has to run.
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
