"""`ParallelIterator`: an iterator whose shards run in actors, and `LocalIterator` in this process.

    list(from_range(100, num_shards=2).for_each(f).filter(g).gather_async())

- `shards`: `ParallelIteratorWorker`, the actor of a shard
- `local`: `LocalIterator`
- `parallel`: `ParallelIterator` and its sources

For data that does not fit in memory, for files and for training use `syncline.data`.
"""

from syncline.util.iter.local import LocalIterator
from syncline.util.iter.parallel import (
    ParallelIterator,
    from_actors,
    from_items,
    from_iterators,
    from_range,
)
from syncline.util.iter.shards import ParallelIteratorWorker

__all__ = [
    "LocalIterator",
    "ParallelIterator",
    "ParallelIteratorWorker",
    "from_actors",
    "from_items",
    "from_iterators",
    "from_range",
]
