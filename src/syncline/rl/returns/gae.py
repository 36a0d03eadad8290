"""Generalized advantage estimation (Schulman et al. 2016, https://arxiv.org/abs/1506.02438)."""

from __future__ import annotations

import numpy as np


def gae(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    ends: np.ndarray,
    gamma: float,
    lambda_: float,
) -> np.ndarray:
    """Return the advantages [T, N], float32.

    A_t = d_t + gamma lambda A_{t+1} with d_t = r_t + gamma V(s_{t+1}) - V(s_t); the sum stops at
    the end of an episode.

    Args:
        rewards: r_t, [T, N].
        values: V(s_t), [T, N].
        next_values: V(s_{t+1}) of the same episode, [T, N]; 0 after terminal states.
        ends: True for the last step of an episode or trajectory, [T, N].
        gamma: Discount factor.
        lambda_: 0 for one-step, 1 for Monte Carlo advantages.
    """
    deltas = rewards + gamma * next_values - values
    decay = (gamma * lambda_) * ~ends
    advantages = np.empty_like(deltas, dtype=np.float32)
    advantage = np.zeros(rewards.shape[1], np.float32)
    for t in range(len(rewards) - 1, -1, -1):
        advantage = deltas[t] + decay[t] * advantage
        advantages[t] = advantage
    return advantages
