"""`Sample`: what a runner hands over at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from syncline.rl.columns.fragment import Fragment


@dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """A finished episode."""

    env: int
    """Global index of the environment."""
    episode_return: float
    length: int
    """Steps of the environment."""
    duration_s: float
    agent_returns: dict[Any, float] = field(default_factory=dict)
    """Returns by agent; empty with one agent."""
    module_returns: dict[str, float] = field(default_factory=dict)
    """Mean returns of the agents of each module; empty with one agent."""
    agent_steps: dict[Any, int] = field(default_factory=dict)


@dataclass(kw_only=True)
class SampleTimes:
    """Seconds that a sample took."""

    env_s: float = 0.0
    """In the environments."""
    inference_s: float = 0.0
    """In the module."""
    total_s: float = 0.0


@dataclass(kw_only=True)
class Sample:
    """Fragments by module, and what happened while they were sampled."""

    fragments: dict[str, Fragment]
    episodes: list[EpisodeResult]
    """Episodes that ended."""
    env_steps: int
    agent_steps: dict[Any, int] = field(default_factory=dict)
    """Steps by agent; empty with one agent."""
    module_steps: dict[str, int] = field(default_factory=dict)
    times: SampleTimes = field(default_factory=SampleTimes)
    metrics: Any = None
    """What callbacks and connectors logged: the state of a `MetricsLogger`, or None."""
    connectors: Any = None
    """Changes of the runner's connectors, for merging; None if there is nothing to merge."""
    env_restarts: int = 0
    """Environments that were recreated after an error."""
    runner: int = 0
    """Index of the runner; 0 is that of the algorithm's process."""
    pid: int = 0
    """Process of the runner; 0 for the algorithm's process."""
    host: str = ""
    """Machine of the runner; "" for that of the algorithm."""
