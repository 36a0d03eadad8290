"""Names of Ray's experimental package that programs use.

`internal_kv`: small values that all processes share; `tqdm_ray`: progress bars of workers;
`collective`: collective operations in graphs. They load on first use, as do further names of
`ray_paths`.
"""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

from syncline.ray_paths import finder

__all__ = ["collective", "internal_kv", "set_resource", "tqdm_ray"]


def __getattr__(name: str) -> Any:
    if name in ("collective", "internal_kv", "tqdm_ray"):
        return importlib.import_module(f"{__name__}.{name}")
    return finder.attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *finder.names_of(__name__)})


def set_resource(resource_name: str, capacity: float, node_id: str | None = None) -> NoReturn:
    """Raise NotImplementedError: resources are set with `init`, or when a node starts."""
    raise NotImplementedError(
        f"The resource {resource_name!r} cannot change while the engine runs: pass "
        f"`resources={{{resource_name!r}: {capacity}}}` to `init` or to `syncline start`."
    )
