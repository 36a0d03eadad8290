"""What an execution has to work with: what block sizes, read tasks and numbers of partitions are
derived from.

A restart in the middle of an execution needs the same blocks again, on another machine as well: so
the shape is part of every restart point, and nothing else about the machine decides about blocks.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from syncline.core import api
from syncline.core.limits import machine_limits
from syncline.data.context import MIB, DataContext

# Blocks that an operator makes at once, and those that wait for the next, have to fit into the
# budget several times over.
_BLOCKS_IN_BUDGET_PER_CPU = 4


@dataclass(frozen=True, kw_only=True)
class Shape:
    """CPUs and bytes that an execution is laid out for."""

    cpus: int
    budget_bytes: int

    def block_bytes(self, context: DataContext) -> int:
        """Bytes at which a task begins a new block."""
        fitting = max(MIB, self.budget_bytes // (_BLOCKS_IN_BUDGET_PER_CPU * self.cpus))
        return (
            fitting
            if context.target_max_block_size is None
            else min(context.target_max_block_size, fitting)
        )

    def to_list(self) -> list[int]:
        """A form for JSON."""
        return [self.cpus, self.budget_bytes]


def shape_for(context: DataContext) -> Shape:
    """The shape of executions of a context, here and now: all CPUs of the machine or cluster, and
    the budget of the options.

    Without a limit in the options the budget is a quarter of the machine's memory.
    """
    limits = context.execution_options.resource_limits
    cpus = min(api.cluster_resources().get("CPU", 1), limits.cpu)
    budget = limits.object_store_memory
    return Shape(
        cpus=max(1, int(cpus)),
        budget_bytes=_memory_bytes() // 4 if math.isinf(budget) else max(MIB, int(budget)),
    )


@functools.cache
def _memory_bytes() -> int:
    """Asked once: reading the system's limits takes longer than starting an execution."""
    return machine_limits().memory_bytes
