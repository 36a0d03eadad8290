"""Types of the values that pass between environments, modules and learners.

They name what a value is where its Python type depends on the user's spaces and modules.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, SupportsFloat, TypeAlias, TypeVar

import gymnasium as gym

T = TypeVar("T")

Tree: TypeAlias = Any
"""An array, or a dict, tuple or list of trees: an observation, an action, a recurrent state."""

Arrays: TypeAlias = Tree
"""An array, or a dict or tuple of arrays as deep as the space."""

Space: TypeAlias = gym.Space[Any]
"""A space of gymnasium, for elements of any type."""

CheckedSpace: TypeAlias = Any
"""A space whose class an option or an earlier check determines, so that its members are used."""

SpacePair: TypeAlias = tuple[CheckedSpace, CheckedSpace]
"""The spaces of observations and actions."""

Env: TypeAlias = gym.Env[Any, Any]
"""An environment of gymnasium, for observations and actions of any type."""

VectorEnv: TypeAlias = gym.vector.VectorEnv[Any, Any, Any]
"""A vector environment of gymnasium, for observations and actions of any type."""

Frame: TypeAlias = Any
"""A rendered environment: an array [height, width, 3], text or None, as the render mode says."""

AgentID: TypeAlias = Hashable
"""The name that a multi-agent environment gives to an agent."""

AgentDict: TypeAlias = dict[Any, T]
"""Values by agent. Dicts are invariant in their keys, and programs have `dict[str, ...]`."""

AgentMapping: TypeAlias = Mapping[Any, T]
"""Values by agent, for reading."""

Batch: TypeAlias = dict[str, Tree]
"""Arrays or tensors by column, or the batches of several modules by their ids."""

StateDict: TypeAlias = dict[str, Any]
"""State of an object, as `get_state` returns and `set_state` accepts it."""

CallArguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a call."""

Components: TypeAlias = list[tuple[str, Any]]
"""The parts of an object with states of their own: name, and object with `get_state`."""

Info: TypeAlias = dict[str, Any]
"""The info dict of one step or reset."""

EnvStep: TypeAlias = tuple[Tree, SupportsFloat, bool, bool, Info]
"""Result of `step`: observation, reward, terminated, truncated, info."""

EnvReset: TypeAlias = tuple[Tree, Info]
"""Result of `reset`: observation, info."""

EnvConfig: TypeAlias = dict[str, Any]
"""The options of an environment's constructor."""

Options: TypeAlias = dict[str, Any]
"""Options by name, as a user writes them; their reader checks the values."""

Results: TypeAlias = dict[str, Any]
"""Metrics by name, nested: of an iteration, an evaluation or an update."""

Episode: TypeAlias = Any
"""An episode of one agent, or of several; hooks of programs declare the class that they take."""

Episodes: TypeAlias = list[Episode]
"""Episodes of one agent, or of several; connectors of programs declare the class that they take."""

CustomData: TypeAlias = dict[Any, Any]
"""Values that callbacks and connectors keep with an episode, under keys of their own."""

Selection: TypeAlias = str | Collection[str] | None
"""Names of components, or the one name; None for all."""

AlgorithmType: TypeAlias = Any
"""An `Algorithm`, or an algorithm of a program; its class is above the packages that name it."""

EnvRunnerType: TypeAlias = Any
"""An env runner: the options choose its class, which is above the packages that name it."""

ModuleType: TypeAlias = Any
"""An `RLModule` with the methods that its algorithm needs; the options choose its class."""

LearnerType: TypeAlias = Any
"""A learner; the options choose its class."""

OptionSchedule: TypeAlias = float | Sequence[Sequence[float]]
"""A number, or the points `[step, value]` of a schedule."""

OptionMapping: TypeAlias = Mapping[str, Any]
"""Options by name, for reading."""

Network: TypeAlias = Any
"""A `torch.nn.Module` with the methods of its kind, such as `encode_actor` of an encoder."""

Device: TypeAlias = Any
"""A `torch.device`, or its name; torch is imported only where it is used."""
