"""Persisted collections: their partitions stay in the object store, and the graph holds a
`Persisted` for each.

A `Persisted` is what Dask calls a future: in a graph it stands for its key, and the scheduler knows
the value of the key. The objects are freed when the last collection that holds them is gone.
"""

from __future__ import annotations

import weakref
from typing import Any

from dask._task_spec import TaskRef

from syncline.core.refs import ObjectRef


class Persisted(TaskRef):
    """The value of a key, in the object store."""

    __dask_future__ = True

    def __init__(self, key: Any, ref: ObjectRef[Any]) -> None:
        super().__init__(key)
        self.ref = ref
        _alive[key] = self

    def __dask_tokenize__(self) -> tuple[str, Any, str]:
        return (type(self).__name__, self.key, self.ref.hex())

    def __hash__(self) -> int:
        return hash((self.key, self.ref))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Persisted) and (other.key, other.ref) == (self.key, self.ref)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Persisted, (self.key, self.ref))

    def __repr__(self) -> str:
        return f"Persisted({self.key!r}, {self.ref!r})"


_alive: weakref.WeakValueDictionary[Any, Persisted] = weakref.WeakValueDictionary()


def persisted(key: Any) -> Persisted | None:
    """The living persisted value of a key in this process, if there is one."""
    return _alive.get(key)
