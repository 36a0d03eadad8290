"""syncline trains PyTorch models on one machine or on many, with the API of Ray's AI libraries.

This module exports tasks, actors and objects (`core`, with `actor`, `exceptions` and `runtime_env`
as its public modules). `data`, `train`, `tune`, `serve`, `runs`, `util`, `air` and `testing` load
on first use. `cli` and `dashboard` are applications on top. Every package may use `settings`
(environment variables), `faults` (fault points for tests), `optional` (imports of optional
libraries), `suggestions` (for misspelled names) and `storage` (files and retries).

Files: `rl`, `rllib`.
"""

import importlib
import sys
from types import ModuleType

from syncline import actor, exceptions
from syncline.core.api import (
    ObjectRef,
    ObjectRefGenerator,
    available_resources,
    cancel,
    cluster_resources,
    get,
    get_actor,
    get_gpu_ids,
    get_runtime_context,
    init,
    is_initialized,
    kill,
    method,
    nodes,
    put,
    remote,
    shutdown,
    timeline,
    wait,
)
from syncline.suggestions import missing_attribute

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
    {"air", "data", "runs", "runtime_env", "serve", "testing", "train", "tune", "util"}
)


def __getattr__(name: str) -> ModuleType:
    if name in _SUBMODULES:
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":  # the submodule exists; its dependency does not
                raise
    raise missing_attribute(sys.modules[__name__], name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})
