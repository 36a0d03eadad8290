"""`Sample`: the result of one sampling call of a runner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from syncline.rl.columns.fragment import Fragment
from syncline.rl.value_types import AgentDict


@dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """A finished episode."""

    env: int
    """Global index of the environment."""
    episode_return: float
    length: int
    """Number of environment steps."""
    duration_s: float
    agent_returns: AgentDict[float] = field(default_factory=dict)
    """Returns by agent; empty with one agent."""
    module_returns: dict[str, float] = field(default_factory=dict)
    """Mean returns over the agents of each module; empty with one agent."""
    agent_steps: AgentDict[int] = field(default_factory=dict)


@dataclass(kw_only=True)
class SampleTimes:
    """Duration of a sample in seconds."""

    env_s: float = 0.0
    """Seconds in the environments."""
    inference_s: float = 0.0
    """Seconds in the module."""
    total_s: float = 0.0


@dataclass(kw_only=True)
class Sample:
    """Fragments by module, with episodes, times and metrics."""

    fragments: dict[str, Fragment]
    episodes: list[EpisodeResult]
    """Finished episodes."""
    env_steps: int
    agent_steps: AgentDict[int] = field(default_factory=dict)
    """Number of steps by agent; empty with one agent."""
    module_steps: dict[str, int] = field(default_factory=dict)
    times: SampleTimes = field(default_factory=SampleTimes)
    metrics: Any = None
    """Metrics of callbacks and connectors as the state of a `MetricsLogger`, or None."""
    connectors: Any = None
    """Changes of the runner's connectors for merging, or None."""
    env_restarts: int = 0
    """Number of environments recreated after an error."""
    runner: int = 0
    """Index of the runner; 0 for the local one."""
    pid: int = 0
    """Process id of the runner; 0 for the algorithm's process."""
    host: str = ""
    """Host of the runner; empty for the algorithm's host."""
