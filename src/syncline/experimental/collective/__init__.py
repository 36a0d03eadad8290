"""Collective operations in graphs: `allreduce.bind([actor.f.bind(x) for actor in actors])`.

- `types`: reduce operations of graphs
- `binding`: `allreduce`, `allgather`, `reducescatter`, with the checks of their nodes
- `nodes`: the operation, and its output on each actor
- `execution`: the operation in the process of an actor, over a group of `util.collective`
"""

from syncline.experimental.collective.binding import allgather, allreduce, reducescatter
from syncline.experimental.collective.types import ReduceOp
from syncline.ray_paths import finder

__all__ = ["ReduceOp", "allgather", "allreduce", "reducescatter"]


def __getattr__(name: str) -> object:
    return finder.attribute(__name__, name, __all__)
