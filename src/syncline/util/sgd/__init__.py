"""The older training API: `TorchTrainer`, in which programs start every epoch themselves.

`utils` has meters and timers; `torch` has everything else. `syncline.util.sgd.TorchTrainer` is
loaded on first use, together with torch. New programs use `syncline.train`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncline.util.sgd.torch import TorchTrainer

__all__ = ["TorchTrainer"]


def __getattr__(name: str) -> Any:
    """Load the trainer on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("syncline.util.sgd.torch"), name)
