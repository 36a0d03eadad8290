"""Where tensors go that are made with `device="auto"`: the one thing that iteration has to ask
training, which is a layer above.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _no_device() -> None:
    return None


_find: Callable[[], Any] = _no_device


def set_device_finder(find: Callable[[], Any] | None) -> None:
    """From now on `find()` says which device the calling code should use, None for none; `None`
    forgets the finder.
    """
    global _find
    _find = find or _no_device


def worker_device() -> Any:
    """The `torch.device` of the training worker that this is; None outside of training."""
    return _find()
