"""Execution of one node of a Dask graph in a worker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dask._task_spec import GraphNode, Task

from syncline.core import api
from syncline.core.refs import AnyRef, ObjectRef
from syncline.util.dask.graph import Key
from syncline.util.dask.sharing import copied_on_write, explain

Layout = tuple[tuple[Key, int, type | None], ...]
"""For each dependency: its key, its number of arguments, and the sequence type if it has parts."""


@dataclass(frozen=True, kw_only=True)
class TaskEnd:
    """Last return value of each task, so small that the program can always fetch it."""

    seconds: float
    """Duration of the call."""
    pid: int
    """Process that ran the task."""
    kind: type | None
    """Type of the sequence if the items are stored separately (`num_returns` above 1)."""


@dataclass(frozen=True, kw_only=True)
class WorkerCallbacks:
    """Callbacks around every task, in its worker."""

    pretask: tuple[Callable[..., object], ...]
    posttask: tuple[tuple[Callable[..., object], int | None], ...]
    """Each with the index of the `pretask` whose result it receives; None without one."""


def run_node(
    node: GraphNode,
    layout: Layout,
    num_returns: int,
    callbacks: WorkerCallbacks | None,
    references: Sequence[AnyRef],
    *arguments: object,
) -> tuple[Any, ...]:
    """Call `node` on the values of its dependencies.

    Returns:
        The value, or its `num_returns` items, followed by a `TaskEnd`.
    """
    began = time.perf_counter()
    values = put_together(layout, arguments)
    if isinstance(node, Task):
        node = _with_values_of_references(node)
    states = (
        [callback(node.key, list(references)) for callback in callbacks.pretask]
        if callbacks is not None
        else []
    )
    try:
        result = node(values)
    except ValueError as error:
        explain(error)
        raise
    for callback, position in callbacks.posttask if callbacks is not None else ():
        callback(node.key, result, None if position is None else states[position])
    items, kind = ((result,), None) if num_returns == 1 else _items(result, num_returns)
    return (*items, TaskEnd(seconds=time.perf_counter() - began, pid=os.getpid(), kind=kind))


def put_together(layout: Layout, arguments: Sequence[object]) -> dict[Key, object]:
    """Return the value of each dependency by key; valid while the arguments live."""
    values: dict[Key, object] = {}
    position = 0
    for key, count, kind in layout:
        taken = arguments[position : position + count]
        values[key] = (
            copied_on_write(taken[0]) if kind is None else kind(map(copied_on_write, taken))
        )
        position += count
    return values


def _items(result: Any, num_returns: int) -> tuple[tuple[object, ...], type]:
    items = tuple(result)
    if len(items) != num_returns:
        raise ValueError(
            f"`num_returns={num_returns}`, but the task returned {len(items)} items: annotate the "
            "task with the right number."
        )
    return items, list if isinstance(result, list) else tuple


def _with_values_of_references(node: Task) -> Task:
    """Return the task with the values of syncline's references among its arguments."""
    named = node.kwargs.items()
    if not any(_has_reference(value) for value in node.args) and not any(
        _has_reference(value) for _, value in named
    ):
        return node
    return Task(
        node.key,
        node.func,
        *map(_fetched, node.args),
        **{name: _fetched(value) for name, value in named},
    )


def _has_reference(value: Any) -> bool:
    if type(value) in (list, tuple):
        return any(map(_has_reference, value))
    return isinstance(value, ObjectRef)


def _fetched(value: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value)(map(_fetched, value)) if _has_reference(value) else value
    return api.get(value) if isinstance(value, ObjectRef) else value
