"""N-step returns (Sutton and Barto, Reinforcement Learning, chapter 7)."""

from __future__ import annotations

import numpy as np


def discounted_returns(rewards: np.ndarray, ends: np.ndarray, gamma: float) -> np.ndarray:
    """Return the discounted sums of rewards until the end of each episode, [T, N], float32.

    `ends` [T, N] marks the last step of each episode; sums of unfinished episodes stop at T.
    """
    returns = np.empty_like(rewards, dtype=np.float32)
    following = np.zeros(rewards.shape[1], np.float32)
    keep = gamma * ~ends
    for t in range(len(rewards) - 1, -1, -1):
        following = rewards[t] + keep[t] * following
        returns[t] = following
    return returns
