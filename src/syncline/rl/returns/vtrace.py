"""V-trace targets (Espeholt et al. 2018, IMPALA, https://arxiv.org/abs/1802.01561)."""

from __future__ import annotations

import numpy as np


def vtrace(
    log_ratios: np.ndarray,
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    ends: np.ndarray,
    gamma: float,
    clip_rho: float = 1.0,
    clip_pg_rho: float = 1.0,
    lambda_: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the value targets v_s and the policy-gradient advantages, both [T, N], float32.

    v_s - V(s) = rho_s d_s + gamma c_s (v_{s+1} - V(s+1)), with rho = min(clip_rho, pi / mu),
    c = lambda min(1, pi / mu), d_s = r_s + gamma V(s+1) - V(s); the advantage is
    min(clip_pg_rho, pi / mu) (r_s + gamma v_{s+1} - V(s)).

    Args:
        log_ratios: log pi(a_t | s_t) - log mu(a_t | s_t), [T, N].
        rewards: r_t, [T, N].
        values: V(s_t), [T, N].
        next_values: V(s_{t+1}) of the same episode, [T, N]; 0 after terminal states.
        ends: True for the last step of an episode or trajectory, [T, N].
        gamma: Discount factor.
        clip_rho: Maximum importance ratio in the targets.
        clip_pg_rho: Maximum importance ratio in the advantages.
        lambda_: Decay of the traces.
    """
    ratios = np.exp(log_ratios)
    deltas = np.minimum(ratios, clip_rho) * (rewards + gamma * next_values - values)
    decay = gamma * lambda_ * np.minimum(ratios, 1.0) * ~ends
    corrections = np.empty_like(deltas, dtype=np.float32)
    correction = np.zeros(rewards.shape[1], np.float32)
    for t in range(len(rewards) - 1, -1, -1):
        correction = deltas[t] + decay[t] * correction
        corrections[t] = correction
    following = np.where(ends, 0.0, np.concatenate([corrections[1:], corrections[:1] * 0.0]))
    advantages = np.minimum(ratios, clip_pg_rho) * (
        rewards + gamma * (next_values + following) - values
    )
    return values + corrections, advantages.astype(np.float32)
