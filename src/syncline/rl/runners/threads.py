"""Number of torch threads: one per CPU that is reserved for the process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Limit torch to `count` threads per operation within the block.

    Small networks are slower with more threads, and several processes would compete for cores.
    """
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else count
    if torch is None or before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
