"""An optimization for Dask's `*_optimize` settings. DataFrames of today's Dask optimize themselves
and do not ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask._task_spec import convert_legacy_graph, cull, fuse_linear_task_spec
from dask.core import flatten


def dataframe_optimize(dsk: Any, keys: Any, **_ignored: Any) -> dict[Any, Any]:
    """The tasks that `keys` need, with chains of them joined into one task each, so that links of a
    chain cost no object.

    dsk: a graph or a collection's graph. keys: a key, or nested lists of keys.
    """
    graph = dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__()
    wanted = list(flatten(keys)) if isinstance(keys, list) else [keys]
    needed = cull(convert_legacy_graph(dict(graph)), wanted)
    return dict(fuse_linear_task_spec(needed, wanted))
