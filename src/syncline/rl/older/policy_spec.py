"""`PolicySpec`: a policy of an algorithm with several agents."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from syncline.rl.value_types import CheckedSpace, Options, SpacePair


@dataclass
class PolicySpec:
    """Spaces and options of one policy; None selects those of the environment and algorithm."""

    policy_class: type | None = None
    """Has no effect: the algorithm decides."""
    observation_space: CheckedSpace = None
    """Space of the observations."""
    action_space: CheckedSpace = None
    """Space of the actions."""
    config: Any = None
    """Options that differ from the algorithm's."""


def options_of(declared: object) -> Options:
    """Return the options of a policy given as `PolicySpec`, tuple of four, or None."""
    if isinstance(declared, tuple) and len(declared) >= 4:
        return dict(declared[3] or {})
    return dict(getattr(declared, "config", None) or {})


def with_spaces(declared: Any, spaces: SpacePair | None) -> Any:
    """Fill in the missing spaces of a policy specification."""
    if spaces is None:
        return declared
    if isinstance(declared, tuple):
        declared = PolicySpec(*declared)
    made = PolicySpec() if declared is None else copy.copy(declared)
    made.observation_space = made.observation_space or spaces[0]
    made.action_space = made.action_space or spaces[1]
    return made
