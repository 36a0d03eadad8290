"""`PolicyServerInput`: where simulators connect, as older programs say it in `input`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PolicyServerInput:
    """The address of an algorithm: `config["input"] = lambda ioctx: PolicyServerInput(ioctx, …)`.

    Spaces must be in the configuration, since there is no environment.
    """

    ioctx: Any
    """What `input` gets; has `worker_index` and `config`."""
    address: str
    """Host."""
    port: int
    """Port; 0 for any free one."""
    idle_timeout: float = 3.0
    """Has no effect."""
    max_sample_queue_size: int = 20
    """Has no effect."""
