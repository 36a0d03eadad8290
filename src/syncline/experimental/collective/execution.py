"""A collective operation in the process of one actor.

The functions run in the actor, with tensors of torch, whose module needs no import: a process
without it has no tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from syncline.experimental.collective.types import Kind, Operation, ReduceOp
from syncline.util import collective

_REDUCED = {
    ReduceOp.SUM: collective.ReduceOp.SUM,
    ReduceOp.PRODUCT: collective.ReduceOp.PRODUCT,
    ReduceOp.MAX: collective.ReduceOp.MAX,
    ReduceOp.MIN: collective.ReduceOp.MIN,
    ReduceOp.AVG: collective.ReduceOp.SUM,  # divided afterwards
}


def check(actor: object, kind: Kind, world_size: int, after: object, *tensors: Any) -> list[str]:
    """Check the tensors of this actor before any actor waits for the others.

    Returns the types and shapes, which `run` compares with those of the other actors.

    Args:
        actor: The actor; unused.
        kind: The operation.
        world_size: Number of actors.
        after: Result of an earlier operation on this actor, for which this one waits.
        tensors: Results of the input nodes.

    Raises:
        ValueError: An input is not a tensor, or has an unsuitable shape or type.
    """
    torch = sys.modules.get("torch")
    for tensor in tensors:
        if torch is None or not isinstance(tensor, torch.Tensor):
            raise ValueError(
                f"`{kind}` got a {type(tensor).__name__}: each input node returns a torch tensor."
            )
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise ValueError(
            f"`{kind}` got the types {[tensor.dtype for tensor in tensors]} of one actor: convert "
            "its tensors to the same type."
        )
    if kind != "allreduce" and not tensors[0].ndim:
        raise ValueError(f"`{kind}` got a tensor without a dimension: pass `tensor.reshape(1)`.")
    if kind == "reducescatter" and tensors[0].shape[0] % world_size:
        raise ValueError(
            f"`reducescatter` got a tensor of the shape {tuple(tensors[0].shape)}, whose first "
            f"dimension cannot be divided among {world_size} actors."
        )
    return [f"{tensor.dtype} of the shape {tuple(tensor.shape)}" for tensor in tensors]


def run(
    actor: object, operation: Operation, group: str, count: int, *tensors_and_checks: Any
) -> Any:
    """Do the operation with the other actors; return the tensor, or a tuple of several.

    Args:
        actor: The actor; unused.
        operation: The operation.
        group: Name of the declared group.
        count: Number of tensors.
        tensors_and_checks: The tensors of this actor, then results of `check` of all actors: if
            one fails, no actor waits for it.

    Raises:
        ValueError: The actors have tensors of different shapes or types.
    """
    tensors, (first, *others) = tensors_and_checks[:count], tensors_and_checks[count:]
    for number, other in enumerate(others, 1):
        if other != first:
            raise ValueError(
                f"`{operation.kind}` got {', '.join(other)} from actor {number}, but "
                f"{', '.join(first)} from actor 0: return tensors of the same shape and type from "
                "all actors."
            )
    if operation.kind == "allgather":
        return _gathered(tensors[0], group)
    if operation.kind == "reducescatter":
        return _scattered(tensors[0], group, operation.reduce_op)
    if count == 1:
        return _reduced(tensors[0].clone(), group, operation.reduce_op)
    return _reduced_together(tensors, group, operation.reduce_op)


def _reduced(tensor: Any, group: str, reduce_op: ReduceOp) -> Any:
    collective.allreduce(tensor, group, _REDUCED[reduce_op])
    return _averaged(tensor, group, reduce_op)


def _reduced_together(tensors: Sequence[Any], group: str, reduce_op: ReduceOp) -> tuple[Any, ...]:
    flat = tensors[0].new_empty(sum(tensor.numel() for tensor in tensors))
    parts = flat.split([tensor.numel() for tensor in tensors])
    for part, tensor in zip(parts, tensors, strict=True):
        part.copy_(tensor.reshape(-1))
    _reduced(flat, group, reduce_op)
    return tuple(part.view(each.shape) for part, each in zip(parts, tensors, strict=True))


def _gathered(tensor: Any, group: str) -> Any:
    count = collective.get_group_handle(group).world_size
    found = tensor.new_empty((count * tensor.shape[0], *tensor.shape[1:]))
    collective.allgather(list(found.view(count, *tensor.shape).unbind(0)), tensor, group)
    return found


def _scattered(tensor: Any, group: str, reduce_op: ReduceOp) -> Any:
    count = collective.get_group_handle(group).world_size
    parts = tensor.reshape(count, tensor.shape[0] // count, *tensor.shape[1:]).unbind(0)
    found = tensor.new_empty(parts[0].shape)
    collective.reducescatter(found, list(parts), group, _REDUCED[reduce_op])
    return _averaged(found, group, reduce_op)


def _averaged(tensor: Any, group: str, reduce_op: ReduceOp) -> Any:
    if reduce_op is ReduceOp.AVG:
        count = collective.get_collective_group_size(group)
        tensor.div_(count, rounding_mode=None if tensor.is_floating_point() else "trunc")
    return tensor
