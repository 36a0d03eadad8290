"""The older training API: `TorchTrainer`, whose programs drive every epoch themselves. New programs
use `syncline.train`.

`utils` has meters and timers; `torch` has everything else. `syncline.util.sgd.TorchTrainer` is
loaded, with torch, when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncline.util.sgd.torch import TorchTrainer

__all__ = ["TorchTrainer"]


def __getattr__(name: str) -> Any:
    """The trainer."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("syncline.util.sgd.torch"), name)
