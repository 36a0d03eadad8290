"""Lambda returns (Sutton and Barto, Reinforcement Learning, chapter 12)."""

from __future__ import annotations

import numpy as np


def lambda_returns(
    rewards: np.ndarray, next_values: np.ndarray, discounts: np.ndarray, lambda_: float
) -> np.ndarray:
    """Return R_t = r_t + discount_t ((1 - lambda) V(s_{t+1}) + lambda R_{t+1}), [T, N], float32.

    Args:
        rewards: r_t, [T, N].
        next_values: V(s_{t+1}), [T, N]; the last row is also used as R_{T}.
        discounts: Discount factors, 0 after terminal states, [T, N].
        lambda_: 0 for one-step, 1 for Monte Carlo returns.
    """
    returns = np.empty_like(rewards, dtype=np.float32)
    following = next_values[-1]
    for t in range(len(rewards) - 1, -1, -1):
        mixed = (1.0 - lambda_) * next_values[t] + lambda_ * following
        following = rewards[t] + discounts[t] * mixed
        returns[t] = following
    return returns
