"""`PolicySpec`: a policy of an algorithm with several agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class PolicySpec:
    """Spaces and options of one policy; what is None comes from the environment and algorithm."""

    policy_class: Any = None
    """Has no effect: the algorithm decides."""
    observation_space: Any = None
    """Space of the observations."""
    action_space: Any = None
    """Space of the actions."""
    config: Any = None
    """Options that differ from the algorithm's."""


def options_of(declared: Any) -> dict[str, Any]:
    """Return the options in a policy's declaration: a `PolicySpec`, a tuple of four, or None."""
    if isinstance(declared, tuple) and len(declared) >= 4:
        return dict(declared[3] or {})
    return dict(getattr(declared, "config", None) or {})
