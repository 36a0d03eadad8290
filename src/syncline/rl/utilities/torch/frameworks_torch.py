"""RLlib's helpers that import optional frameworks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def try_import_torch(error: bool = False) -> tuple[Any, Any]:
    """Return `torch` and `torch.nn`; `error` has no effect, because torch is required."""
    return torch, nn


def try_import_tf(error: bool = False) -> tuple[None, None, None]:
    """Return (None, None, None): modules and learners use torch.

    Raises:
        ImportError: `error` is True.
    """
    if error:
        raise ImportError("TensorFlow is not supported: write networks in torch.")
    return None, None, None


def try_import_tfp(error: bool = False) -> None:
    """Return None: modules and learners use torch."""
    try_import_tf(error)


def try_import_jax(error: bool = False) -> tuple[None, None]:
    """Return (None, None): modules and learners use torch.

    Raises:
        ImportError: `error` is True.
    """
    if error:
        raise ImportError("JAX is not supported: write networks in torch.")
    return None, None
