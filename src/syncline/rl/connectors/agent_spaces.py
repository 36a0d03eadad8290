"""Spaces of one agent, or of several agents as a Dict by agent id."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import gymnasium as gym

from syncline.rl.value_types import AgentID, CheckedSpace, Episode


def for_each_agent(
    function: Callable[..., Any],
    *spaces: CheckedSpace,
    multi_agent: bool,
    agent_ids: Collection[AgentID] | None = None,
) -> Any:
    """Return `function(space, …)`; with several agents, apply it to each and return a Dict.

    Args:
        function: Maps the spaces of an agent to another space.
        spaces: Spaces of the agent, or Dicts by agent id.
        multi_agent: The spaces are Dicts by agent id.
        agent_ids: Agents whose first space changes; None for all agents.
    """
    if not multi_agent:
        return function(*spaces)
    first = spaces[0]
    return gym.spaces.Dict(
        {
            agent: function(*(each[agent] for each in spaces))
            if agent_ids is None or agent in agent_ids
            else first[agent]
            for agent in first
        }
    )


def space_of_agent(space: CheckedSpace, episode: Episode, multi_agent: bool) -> Any:
    """Return the space of an episode's agent.

    Raises:
        ValueError: The Dict of agent spaces does not contain the agent.
    """
    if not multi_agent:
        return space
    if episode.agent_id not in space.spaces:
        raise ValueError(
            f"The connector has no space for the agent {episode.agent_id!r}; it knows "
            f"{sorted(map(str, space.spaces))}. Give the environment's spaces as Dicts by agent."
        )
    return space[episode.agent_id]
