"""`ray.cluster_utils` in programs that import syncline as `ray`: importable, and refused when used.

`syncline.cluster_utils` starts real nodes with Ray's own modules, which cannot be imported there.
"""

from __future__ import annotations

from typing import NoReturn

_REFUSED = (
    "`{name}` starts nodes of Ray, but `ray` is syncline in this program, which runs on this "
    "machine: use `ray.init(num_cpus=...)` with the resources of all nodes, or convert the program "
    "with `syncline migrate` and use `syncline.cluster_utils`"
)


class Cluster:
    """Not available; raises RuntimeError."""

    def __init__(self, *args: object, **kwargs: object) -> NoReturn:
        raise RuntimeError(_REFUSED.format(name="Cluster"))


class AutoscalingCluster:
    """Not available; raises RuntimeError."""

    def __init__(self, *args: object, **kwargs: object) -> NoReturn:
        raise RuntimeError(_REFUSED.format(name="AutoscalingCluster"))
