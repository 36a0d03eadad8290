"""Collective operations of graphs, and how they combine tensors."""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias

from syncline.records import dataclass


class ReduceOp(Enum):
    """How the tensors of the actors are combined."""

    SUM = 0
    PRODUCT = 1
    MAX = 2
    MIN = 3
    AVG = 4

    def __str__(self) -> str:
        return self.name.lower()


Kind: TypeAlias = Literal["allreduce", "allgather", "reducescatter"]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A collective operation with its settings."""

    kind: Kind
    reduce_op: ReduceOp = ReduceOp.SUM
    """Without effect for `allgather`."""
    backend: str = "gloo"
    """Backend of `util.collective`."""
