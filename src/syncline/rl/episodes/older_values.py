"""`OlderValues`: attributes of episodes in older releases, for callbacks."""

from __future__ import annotations

from typing import Any


class OlderValues:
    """The part of `SingleAgentEpisode` that only callbacks of older releases use.

    What they store belongs to `custom_data`; numbers in `custom_metrics` get into the results.
    """

    __slots__ = ()

    id_: str

    @property
    def custom_data(self) -> dict[Any, Any]:
        """Data of the program; `SingleAgentEpisode` has them."""
        raise NotImplementedError

    @property
    def custom_metrics(self) -> dict[str, Any]:
        """Numbers for the results, by name."""
        found: dict[str, Any] = self.custom_data.setdefault("custom_metrics", {})
        return found

    @property
    def user_data(self) -> dict[Any, Any]:
        """Data of the program."""
        found: dict[Any, Any] = self.custom_data.setdefault("user_data", {})
        return found

    @property
    def hist_data(self) -> dict[str, list[Any]]:
        """Lists of the program."""
        found: dict[str, list[Any]] = self.custom_data.setdefault("hist_data", {})
        return found

    @property
    def episode_id(self) -> str:
        """The id."""
        return self.id_

    @property
    def length(self) -> int:
        """Steps so far."""
        return len(self)  # type: ignore[arg-type]

    @property
    def total_reward(self) -> float:
        """Sum of the rewards so far."""
        total: float = self.get_return()  # type: ignore[attr-defined]
        return total

    def last_info_for(self, agent_id: Any = None) -> Any:
        """Return the newest info."""
        return self.get_infos(-1)  # type: ignore[attr-defined]

    def last_observation_for(self, agent_id: Any = None) -> Any:
        """Return the newest observation."""
        return self.get_observations(-1)  # type: ignore[attr-defined]

    last_raw_obs_for = last_observation_for

    def last_action_for(self, agent_id: Any = None) -> Any:
        """Return the newest action; None before the first step."""
        return self.get_actions(-1) if self.length else None  # type: ignore[attr-defined]

    def last_reward_for(self, agent_id: Any = None) -> float:
        """Return the newest reward; 0 before the first step."""
        return float(self.get_rewards(-1)) if self.length else 0.0  # type: ignore[attr-defined]
