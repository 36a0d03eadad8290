"""`ExternalEnv`: a simulator in a thread of the algorithm's process."""

from __future__ import annotations

import threading
import uuid
from typing import Any

from syncline.rl.value_types import Info, Space, Tree


class ExternalEnv(threading.Thread):
    """Base of simulators that request actions; implement `run`, which loops over episodes.

    Args:
        action_space: Space of the actions.
        observation_space: Space of the observations.
        max_concurrent: Has no effect.
    """

    def __init__(
        self, action_space: Space, observation_space: Space, max_concurrent: int | None = None
    ) -> None:
        super().__init__(daemon=True, name=type(self).__name__)
        self.action_space = action_space
        self.observation_space = observation_space
        self._peer: Any = None

    def connect(self, peer: object) -> None:
        """Set the object that answers requests; called by the env runner before `start`."""
        self._peer = peer

    def run(self) -> None:
        """Run episodes forever: `start_episode`, `get_action`, `log_returns`, `end_episode`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `run`.")

    def start_episode(self, episode_id: str | None = None, training_enabled: bool = True) -> str:
        """Begin an episode; return its id."""
        episode_id = episode_id or uuid.uuid4().hex
        self._peer.start(episode_id, training_enabled)
        return episode_id

    def get_action(self, episode_id: str, observation: Tree) -> Tree:
        """Return the action for an observation, ready for the environment."""
        return self._peer.act(episode_id, observation)

    def log_action(self, episode_id: str, observation: Tree, action: Tree) -> None:
        """Report an action that the simulator chose for an observation."""
        self._peer.log_action(episode_id, observation, action)

    def log_returns(self, episode_id: str, reward: float, info: Info | None = None) -> None:
        """Add a reward to the last action."""
        self._peer.reward(episode_id, float(reward))

    def end_episode(self, episode_id: str, observation: Tree, *, truncated: bool = False) -> None:
        """End an episode with its last observation."""
        self._peer.end(episode_id, observation, truncated)
