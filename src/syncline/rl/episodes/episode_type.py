"""The type of an episode of one or of several agents."""

from __future__ import annotations

from typing import TypeAlias

from syncline.rl.episodes.multi_agent_episode import MultiAgentEpisode
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode

EpisodeType: TypeAlias = SingleAgentEpisode | MultiAgentEpisode
"""An episode of one agent, or of several."""
