"""Nodes of a collective operation: one for the operation, and one for its output on each actor.

The operation is executed as a whole, even if the graph reads a single output, because each actor
waits for the others. It begins once the inputs of all actors are there and valid, and after earlier
operations of the same execution on its actors, so that actors meet in the same order.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from syncline.core.dag.nodes import ClassMethodNode, DAGNode, Results
from syncline.core.engine import Engine
from syncline.core.lifecycle import ensure_engine
from syncline.experimental.collective import execution
from syncline.experimental.collective.types import Operation
from syncline.util.collective.collective import declare_group

_groups: weakref.WeakKeyDictionary[Engine, dict[tuple[str, tuple[int, ...]], str]] = (
    weakref.WeakKeyDictionary()
)
"""Names of the declared groups, by actors and backend."""


class _Outputs(NamedTuple):
    """References of one execution."""

    actor_ids: tuple[int, ...]
    refs: list[Any]
    """By actor; lists of references if the operation has several tensors."""


class CollectiveNode(DAGNode):
    """A collective operation on all of its actors.

    Args:
        operation: The operation.
        inputs: Nodes by tensor and actor.
    """

    def __init__(self, operation: Operation, inputs: Sequence[Sequence[ClassMethodNode]]) -> None:
        self._operation = operation
        self._inputs = inputs
        self._calls = [node.actor_call for node in inputs[0]]
        self._actor_ids = tuple(node.actor_id or 0 for node in inputs[0])
        super().__init__((), {}, [node for nodes in inputs for node in nodes])

    def _run(self, results: Results, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        group, kind = _group(self._actor_ids, self._operation.backend), self._operation.kind
        earlier = {
            actor_id: refs[0] if isinstance(refs, list) else refs
            for found in results.values()
            if isinstance(found, _Outputs)
            for actor_id, refs in zip(found.actor_ids, found.refs, strict=True)
        }
        tensors = [
            [results[node.get_stable_uuid()] for node in nodes]
            for nodes in zip(*self._inputs, strict=True)
        ]
        count = len(self._inputs)
        checks = [
            call.remote(execution.check, kind, len(self._calls), earlier.get(actor_id), *own)
            for call, actor_id, own in zip(self._calls, self._actor_ids, tensors, strict=True)
        ]
        refs = [
            call.options(num_returns=count).remote(
                execution.run, self._operation, group, count, *own, *checks
            )
            for call, own in zip(self._calls, tensors, strict=True)
        ]
        return _Outputs(self._actor_ids, refs)

    def _described(self) -> str:
        return self._operation.kind


class CollectiveOutputNode(ClassMethodNode):
    """The output of a collective operation on one actor."""

    def __init__(self, whole: CollectiveNode, position: int, tensor: int | None) -> None:
        """`tensor` is the number of the tensor, if the operation has several."""
        self._whole = whole
        self._position = position
        self._tensor = tensor
        method = whole._inputs[0][position]._method
        super().__init__((), {}, name=whole._described(), method=method)
        self._needs.append(whole)

    @property
    def collective_op(self) -> Operation:
        """The operation."""
        return self._whole._operation

    def _run(self, results: Results, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        found = results[self._whole.get_stable_uuid()].refs[self._position]
        return found if self._tensor is None else found[self._tensor]


def _group(actor_ids: tuple[int, ...], backend: str) -> str:
    """Return the name of the group of these actors; declare the group on its first use.

    Raises RuntimeError if all actors run in one process.
    """
    engine = ensure_engine()
    if engine.is_local_mode:
        raise RuntimeError(
            "A collective operation needs a process for each actor, but with `local_mode=True` all "
            "actors run in the program: start the engine without it."
        )
    known = _groups.setdefault(engine, {})
    name = known.get((backend, actor_ids))
    if name is None:
        name = known[backend, actor_ids] = f"syncline-graph-{secrets.token_hex(8)}"
        declare_group(actor_ids, range(len(actor_ids)), backend, name)
    return name
