"""Dask graphs as syncline tasks: `enable_dask_on_ray()`, or `scheduler=ray_dask_get` in Dask calls.

Files in the order of the data flow: `graph` (which task may run next, a pure state machine),
`options` (remote arguments of each task), `scheduler` (submits tasks and waits), `worker` (runs one
node of the graph), `sharing` (copies of shared values), `values` (stored and persisted values),
`callbacks` (hooks and the progress bar), `optimizations`.

Values between tasks stay in the object store; only requested values reach the program. They are
shared: a task that writes to a DataFrame writes to its own copy, and a task that writes to an array
gets an error that asks for a copy, unlike in plain Dask.

Not covered: `distributed`, its client and its futures. `syncline.data` reads Dask DataFrames with
`from_dask`.
"""

from __future__ import annotations

try:
    import dask
    import dask._task_spec  # the node classes of graphs since Dask 2024.12
except ModuleNotFoundError as error:
    if error.name not in ("dask", "dask._task_spec"):
        raise
    missing = (
        "is not installed"
        if error.name == "dask"
        else f"{getattr(dask, '__version__', '')} is too old (2025.1 is needed)"
    )
    raise ImportError(
        f'syncline.util.dask needs Dask, but Dask {missing}: run `pip install "syncline[dask]"`.',
        name="dask",
    ) from None

from syncline.util.dask.callbacks import (
    ProgressBarCallback,
    RayDaskCallback,
    add_ray_callbacks,
    local_ray_callbacks,
    unpack_ray_callbacks,
)
from syncline.util.dask.optimizations import dataframe_optimize
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
