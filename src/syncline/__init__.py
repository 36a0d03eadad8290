"""syncline trains PyTorch models on one machine or on many, with the API of Ray's AI libraries.

This module exports tasks, actors and objects (`core`, with `actor`, `exceptions`,
`remote_function`, `runtime_context`, `runtime_env` and `types` as its public modules). They,
`data`, `train`, `tune`, `serve`, `runs`, `util`, `air` and `testing` load on first use, as do
`dag`, `experimental` and `job_submission`. `cli` and `dashboard` are applications on top, `as_ray`
lets programs that import `ray` use syncline, and `ray_paths` has the rest of Ray's module paths,
such as `syncline.cloudpickle` and `syncline._private.services`. Every package may use `settings`
(environment variables), `faults` (fault points for tests), `optional` (imports of optional
libraries), `records` (dataclasses), `suggestions` (for misspelled names), `system` (calls of the
operating system) and `storage` (files and retries). `diagnosis` finds the rank that delays or stops
a training.

Files: `rl`, `rllib`, `launcher`.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from syncline.ray_paths import finder

if TYPE_CHECKING:
    from syncline import actor as actor
    from syncline import exceptions as exceptions
    from syncline.core.api import ObjectRef as ObjectRef
    from syncline.core.api import ObjectRefGenerator as ObjectRefGenerator
    from syncline.core.api import available_resources as available_resources
    from syncline.core.api import cancel as cancel
    from syncline.core.api import cluster_resources as cluster_resources
    from syncline.core.api import get as get
    from syncline.core.api import get_actor as get_actor
    from syncline.core.api import get_gpu_ids as get_gpu_ids
    from syncline.core.api import get_runtime_context as get_runtime_context
    from syncline.core.api import init as init
    from syncline.core.api import is_initialized as is_initialized
    from syncline.core.api import kill as kill
    from syncline.core.api import method as method
    from syncline.core.api import nodes as nodes
    from syncline.core.api import put as put
    from syncline.core.api import remote as remote
    from syncline.core.api import shutdown as shutdown
    from syncline.core.api import timeline as timeline
    from syncline.core.api import wait as wait

__version__ = "0.1.0"

__all__ = [
    "ObjectRef",
    "ObjectRefGenerator",
    "__version__",
    "actor",
    "available_resources",
    "cancel",
    "cluster_resources",
    "exceptions",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "init",
    "is_initialized",
    "kill",
    "method",
    "nodes",
    "put",
    "remote",
    "shutdown",
    "timeline",
    "wait",
]

_SUBMODULES = frozenset(
    {
        "actor", "air", "as_ray", "dag", "data", "exceptions", "experimental", "job_submission",
        "remote_function", "runs", "runtime_context", "runtime_env", "serve", "testing", "train",
        "tune", "types", "util",
    }
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":  # the submodule exists; its dependency does not
                raise
    elif name in __all__:
        value = getattr(importlib.import_module(f"{__name__}.core.api"), name)
        globals()[name] = value
        return value
    return finder.attribute(__name__, name, known=dir(sys.modules[__name__]))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES, *finder.names_of(__name__)})


finder.install()
