"""`allreduce`, `allgather` and `reducescatter` of graphs.

Called as functions, they are those of `util.collective`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast, overload

from syncline.core.dag.nodes import ClassMethodNode, DAGNode
from syncline.experimental.collective.nodes import CollectiveNode, CollectiveOutputNode
from syncline.experimental.collective.types import Operation, ReduceOp
from syncline.util import collective

Nodes: TypeAlias = Sequence[DAGNode] | Sequence[Sequence[DAGNode]]
Outputs: TypeAlias = list[CollectiveOutputNode] | list[list[CollectiveOutputNode]]
_BACKENDS = {
    None: "gloo",
    "auto": "gloo",
    "shm": "gloo",
    "gloo": "gloo",
    "accelerator": "gloo",
    "nccl": "nccl",
}
"""Backends by transport."""


class _AllReduce:
    """`allreduce.bind(nodes)` in a graph, or `allreduce(tensor)` in a task or an actor."""

    @overload
    def bind(
        self, input_nodes: Sequence[DAGNode], op: ReduceOp = ..., transport: str | None = ...
    ) -> list[CollectiveOutputNode]: ...
    @overload
    def bind(
        self,
        input_nodes: Sequence[Sequence[DAGNode]],
        op: ReduceOp = ...,
        transport: str | None = ...,
    ) -> list[list[CollectiveOutputNode]]: ...
    def bind(
        self, input_nodes: Nodes, op: ReduceOp = ReduceOp.SUM, transport: str | None = None
    ) -> Outputs:
        """Return a node for each actor, whose value combines the tensors of all.

        Args:
            input_nodes: A node of each actor, which returns a tensor of the same shape; or a list
                of such lists, with the actors in the same order. Their tensors are then combined
                together, and each actor has a list of nodes.
            op: How tensors are combined.
            transport: "nccl" for tensors on GPUs; all else is Gloo.

        Raises:
            ValueError: The nodes are not those of different actors, or an argument is unknown.
        """
        operation = Operation(kind="allreduce", reduce_op=_checked(op), backend=_backend(transport))
        return _bound(operation, input_nodes if _is_nested(input_nodes) else [input_nodes])

    def __call__(
        self,
        tensor: object,
        group_name: str = "default",
        op: collective.ReduceOp = collective.ReduceOp.SUM,
    ) -> None:
        """Call `util.collective.allreduce`."""
        collective.allreduce(tensor, group_name, op)


class _AllGather:
    """`allgather.bind(nodes)` in a graph, or `allgather(tensors, tensor)` in a task or an actor."""

    def bind(
        self, input_nodes: Sequence[DAGNode], transport: str | None = None
    ) -> list[CollectiveOutputNode]:
        """Return a node for each actor, whose value has the tensors of all, concatenated along the
        first dimension. Arguments and errors are those of `allreduce.bind`, without nested lists.
        """
        return _single(Operation(kind="allgather", backend=_backend(transport)), input_nodes)

    def __call__(
        self, tensor_list: Sequence[object], tensor: object, group_name: str = "default"
    ) -> None:
        """Call `util.collective.allgather`."""
        collective.allgather(tensor_list, tensor, group_name)


class _ReduceScatter:
    """`reducescatter.bind(nodes)` in a graph, or `reducescatter(tensor, tensors)` in a task or an
    actor.
    """

    def bind(
        self,
        input_nodes: Sequence[DAGNode],
        op: ReduceOp = ReduceOp.SUM,
        transport: str | None = None,
    ) -> list[CollectiveOutputNode]:
        """Return a node for each actor, whose value is its part of the combined tensor: parts of
        the first dimension, in the order of the actors. Arguments and errors are those of
        `allreduce.bind`, without nested lists.
        """
        operation = Operation(
            kind="reducescatter", reduce_op=_checked(op), backend=_backend(transport)
        )
        return _single(operation, input_nodes)

    def __call__(
        self,
        tensor: object,
        tensor_list: Sequence[object],
        group_name: str = "default",
        op: collective.ReduceOp = collective.ReduceOp.SUM,
    ) -> None:
        """Call `util.collective.reducescatter`."""
        collective.reducescatter(tensor, tensor_list, group_name, op)


allreduce = _AllReduce()
allgather = _AllGather()
reducescatter = _ReduceScatter()


def _single(operation: Operation, input_nodes: Sequence[DAGNode]) -> list[CollectiveOutputNode]:
    if _is_nested(input_nodes):
        raise ValueError(
            f"`{operation.kind}.bind` got nested lists, which only `allreduce` takes: bind each "
            "list for itself."
        )
    return cast("list[CollectiveOutputNode]", _bound(operation, [input_nodes]))


def _is_nested(nodes: object) -> bool:
    return isinstance(nodes, (list, tuple)) and isinstance(next(iter(nodes), None), (list, tuple))


def _bound(operation: Operation, inputs: Sequence[object]) -> Outputs:
    checked = [_actor_nodes(operation, nodes) for nodes in inputs]
    first = [node.actor_id for node in checked[0]]
    for number, nodes in enumerate(checked):
        if [node.actor_id for node in nodes] != first:
            raise ValueError(
                f"`{operation.kind}.bind`: list {number} has other actors than list 0, or another "
                "order of them: pass a node of each actor, in the same order in each list."
            )
    whole = CollectiveNode(operation, checked)
    positions = range(len(first))
    if len(checked) == 1:
        return [CollectiveOutputNode(whole, position, None) for position in positions]
    return [
        [CollectiveOutputNode(whole, position, tensor) for tensor in range(len(checked))]
        for position in positions
    ]


def _actor_nodes(operation: Operation, nodes: object) -> list[ClassMethodNode]:
    """Return the nodes; ValueError unless each is a call of another actor that runs."""
    name = f"`{operation.kind}.bind`"
    if not isinstance(nodes, (list, tuple)) or not nodes:
        raise ValueError(f"{name} got {nodes!r}: pass a list with a node of each actor.")
    found: list[ClassMethodNode] = []
    for node in nodes:
        if not isinstance(node, ClassMethodNode) or node.actor_id is None:
            raise ValueError(
                f"{name} got {node!r}: pass bound methods of actors that run, "
                "`actor.method.bind(...)`."
            )
        if any(node.actor_id == other.actor_id for other in found):
            raise ValueError(f"{name} got two nodes of the same actor, {node!r}: pass one of each.")
        found.append(node)
    return found


def _checked(op: object) -> ReduceOp:
    if not isinstance(op, ReduceOp):
        raise ValueError(
            f"`op={op!r}` is not an operation of graphs: pass one of "
            f"{', '.join(f'ReduceOp.{each.name}' for each in ReduceOp)} of "
            "`syncline.experimental.collective`."
        )
    return op


def _backend(transport: object) -> str:
    if transport is not None and not isinstance(transport, str):
        raise NotImplementedError(
            f"`transport={transport!r}`: communicators of your own are not supported. Pass 'nccl', "
            "or omit it for Gloo."
        )
    if transport not in _BACKENDS:
        known = ", ".join(repr(each) for each in _BACKENDS if each)
        raise ValueError(f"`transport={transport!r}` is unknown: pass one of {known}.")
    return _BACKENDS[transport]
