"""Episode attributes of older releases, for callbacks: `OlderValues` for one agent and
`OlderMultiAgentValues` for several.
"""

from __future__ import annotations

from typing import Any

from syncline.rl.value_types import AgentDict, AgentID, CustomData, Results, Tree


class OlderValues:
    """Attributes of `SingleAgentEpisode` for callbacks from older releases.

    Their data are stored in `custom_data`; numbers in `custom_metrics` are added to the results.
    """

    __slots__ = ()

    id_: str

    @property
    def custom_data(self) -> CustomData:
        """User data, defined by `SingleAgentEpisode`."""
        raise NotImplementedError

    @property
    def custom_metrics(self) -> Results:
        """Numbers for the results, by name."""
        found: Results = self.custom_data.setdefault("custom_metrics", {})
        return found

    @property
    def user_data(self) -> CustomData:
        """User data."""
        found: CustomData = self.custom_data.setdefault("user_data", {})
        return found

    @property
    def hist_data(self) -> dict[str, list[float]]:
        """User-defined lists."""
        found: dict[str, list[float]] = self.custom_data.setdefault("hist_data", {})
        return found

    @property
    def episode_id(self) -> str:
        """Id of the episode."""
        return self.id_

    @property
    def length(self) -> int:
        """Number of steps so far."""
        return len(self)  # type: ignore[arg-type]

    @property
    def total_reward(self) -> float:
        """Sum of the rewards so far."""
        total: float = self.get_return()  # type: ignore[attr-defined]
        return total

    def last_info_for(self, agent_id: AgentID = None) -> Tree:
        """Return the newest info."""
        return self.get_infos(-1)  # type: ignore[attr-defined]

    def last_observation_for(self, agent_id: AgentID = None) -> Tree:
        """Return the newest observation."""
        return self.get_observations(-1)  # type: ignore[attr-defined]

    last_raw_obs_for = last_observation_for

    def last_action_for(self, agent_id: AgentID = None) -> Tree:
        """Return the newest action; None before the first step."""
        return self.get_actions(-1) if self.length else None  # type: ignore[attr-defined]

    def last_reward_for(self, agent_id: AgentID = None) -> float:
        """Return the newest reward; 0 before the first step."""
        return float(self.get_rewards(-1)) if self.length else 0.0  # type: ignore[attr-defined]


class OlderMultiAgentValues(OlderValues):
    """The same for `MultiAgentEpisode`; methods return the newest values of one agent."""

    agent_episodes: AgentDict[Any]

    @property
    def agent_rewards(self) -> dict[tuple[AgentID, str], float]:
        """Sums of the rewards by agent and module."""
        return {
            (agent, each.module_id): each.get_return()
            for agent, each in self.agent_episodes.items()
        }

    def last_info_for(self, agent_id: AgentID = None) -> Tree:
        """Return the newest info of an agent, or None."""
        return self._newest_of(agent_id, "last_info_for", None)

    def last_observation_for(self, agent_id: AgentID = None) -> Tree:
        """Return the newest observation of an agent, or None."""
        return self._newest_of(agent_id, "last_observation_for", None)

    last_raw_obs_for = last_observation_for

    def last_action_for(self, agent_id: AgentID = None) -> Tree:
        """Return the action of an agent's newest complete step, or None."""
        return self._newest_of(agent_id, "last_action_for", None)

    def last_reward_for(self, agent_id: AgentID = None) -> float:
        """Return the reward of an agent's newest complete step, or 0."""
        return float(self._newest_of(agent_id, "last_reward_for", 0.0))

    def _newest_of(self, agent_id: AgentID, method: str, otherwise: Tree) -> Tree:
        single = self.agent_episodes.get(agent_id)
        return otherwise if single is None else getattr(single, method)()
