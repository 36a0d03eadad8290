"""An optimization for Dask's `*_optimize` settings; current DataFrames optimize themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask._task_spec import convert_legacy_graph, cull, fuse_linear_task_spec
from dask.core import flatten


def dataframe_optimize(dsk: Any, keys: object, **_ignored: object) -> dict[Any, Any]:
    """Return the tasks that `keys` need, with each linear chain fused into one task.

    Args:
        dsk: A graph or the graph of a collection.
        keys: A key, or nested lists of keys.
    """
    graph = dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__()
    wanted = list(flatten(keys)) if isinstance(keys, list) else [keys]
    needed = cull(convert_legacy_graph(dict(graph)), wanted)
    return dict(fuse_linear_task_spec(needed, wanted))
