"""`PolicyServerInput`: the address for simulators in the `input` option of older programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PolicyServerInput:
    """The address of an algorithm: `config["input"] = lambda ioctx: PolicyServerInput(ioctx, …)`.

    Without an environment, the configuration must contain the spaces.
    """

    ioctx: Any
    """Argument of `input`, with `worker_index` and `config`."""
    address: str
    """Host."""
    port: int
    """Port; 0 for any free port."""
    idle_timeout: float = 3.0
    """Has no effect."""
    max_sample_queue_size: int = 20
    """Has no effect."""
