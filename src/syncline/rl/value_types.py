"""Types of the values that pass between environments, modules and learners.

They name what a value is where its Python type depends on the user's spaces and modules.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeAlias

import gymnasium as gym

Tree: TypeAlias = Any
"""An array, or a dict, tuple or list of trees: an observation, an action, a recurrent state."""

Space: TypeAlias = gym.Space[Any]
"""A space of gymnasium, for elements of any type."""

Env: TypeAlias = gym.Env[Any, Any]
"""An environment of gymnasium, for observations and actions of any type."""

AgentID: TypeAlias = Hashable
"""The name that a multi-agent environment gives to an agent."""

Batch: TypeAlias = dict[str, Tree]
"""Arrays or tensors by column, or the batches of several modules by their ids."""

StateDict: TypeAlias = dict[str, Any]
"""What `get_state` returns and `set_state` accepts."""

Info: TypeAlias = dict[str, Any]
"""The info dict of one step or reset."""

EnvConfig: TypeAlias = dict[str, Any]
"""The options of an environment's constructor."""
