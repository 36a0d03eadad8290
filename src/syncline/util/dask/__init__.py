"""Dask graphs as syncline tasks: `enable_dask_on_ray()`, or `scheduler=ray_dask_get` in any Dask
call.

In the order in which a graph flows through them: `graph` (what may run next: a pure state machine),
`scheduler` (submits and waits), `worker` (what a task does), `sharing` (who may write to what),
`persist` (collections whose partitions stay in the object store), `callbacks` and `progress`
(watching), `optimizations`. Values between tasks stay in the object store: only what the caller
asked for comes to the program. They are shared: a task that writes to a DataFrame writes to a copy
of its own, and one that writes to an array is told to copy it, unlike in plain Dask.

Not covered: `distributed`, its client and its futures. `syncline.data` reads Dask's DataFrames with
`from_dask`.
"""

from __future__ import annotations

try:
    import dask
    import dask._task_spec  # what graphs are made of since Dask 2024.12
except ModuleNotFoundError as error:
    if error.name not in ("dask", "dask._task_spec"):
        raise
    missing = (
        "is not installed"
        if error.name == "dask"
        else f"{getattr(dask, '__version__', '')} is too old (2025.1 is needed)"
    )
    raise ImportError(
        f'syncline.util.dask runs graphs of Dask, but Dask {missing}: pip install "syncline[dask]"',
        name="dask",
    ) from None

from syncline.util.dask.callbacks import (
    RayDaskCallback,
    add_ray_callbacks,
    local_ray_callbacks,
    unpack_ray_callbacks,
)
from syncline.util.dask.optimizations import dataframe_optimize
from syncline.util.dask.progress import ProgressBarCallback
from syncline.util.dask.scheduler import (
    disable_dask_on_ray,
    disable_dask_on_syncline,
    enable_dask_on_ray,
    enable_dask_on_syncline,
    ray_dask_get,
    ray_dask_get_sync,
    ray_dask_persist,
)

__all__ = [
    "ProgressBarCallback",
    "RayDaskCallback",
    "add_ray_callbacks",
    "dataframe_optimize",
    "disable_dask_on_ray",
    "disable_dask_on_syncline",
    "enable_dask_on_ray",
    "enable_dask_on_syncline",
    "local_ray_callbacks",
    "ray_dask_get",
    "ray_dask_get_sync",
    "ray_dask_persist",
    "unpack_ray_callbacks",
]
