"""Returns and advantages of single-trajectory `SampleBatch`es, for older programs."""

from __future__ import annotations

import numpy as np

from syncline.rl.columns.names import Columns
from syncline.rl.connectors.to_learner.train_columns import AddOneTsToEpisodesAndTruncate
from syncline.rl.older.sample_batch import SampleBatch
from syncline.rl.returns.gae import gae
from syncline.rl.returns.n_step import discounted_returns
from syncline.rl.value_types import Episodes, Tree


class Postprocessing:
    """Names of computed columns."""

    ADVANTAGES = Columns.ADVANTAGES
    VALUE_TARGETS = Columns.VALUE_TARGETS


def discount_cumsum(x: Tree, gamma: float) -> np.ndarray:
    """Return the discounted cumulative sums of future values, [T]."""
    rewards = np.asarray(x, np.float32)[:, None]
    return discounted_returns(rewards, np.zeros(rewards.shape, bool), gamma)[:, 0]


def compute_advantages(
    rollout: SampleBatch,
    last_r: float,
    gamma: float = 0.9,
    lambda_: float = 1.0,
    use_gae: bool = True,
    use_critic: bool = True,
    rewards: str = SampleBatch.REWARDS,
    vf_preds: str = SampleBatch.VF_PREDS,
) -> SampleBatch:
    """Add advantages and value targets to the rows of one trajectory; return the rows.

    Args:
        rollout: The rows, with rewards and, for a critic, values.
        last_r: Value of the observation after the last row; 0 after a terminal state.
        gamma: Discount factor.
        lambda_: Lambda of generalized advantage estimation.
        use_gae: Use generalized advantage estimation.
        use_critic: Subtract the values.
        rewards: Column of the rewards.
        vf_preds: Column of the values.
    """
    gains = np.asarray(rollout[rewards], np.float32)
    ends = np.zeros((len(gains), 1), bool)
    if use_gae:
        values = np.asarray(rollout[vf_preds], np.float32)
        following = np.append(values[1:], np.float32(last_r))
        found = gae(gains[:, None], values[:, None], following[:, None], ends, gamma, lambda_)[:, 0]
        rollout[Postprocessing.ADVANTAGES] = found
        rollout[Postprocessing.VALUE_TARGETS] = found + values
        return rollout
    returns = discount_cumsum(np.append(gains, np.float32(last_r)), gamma)[:-1]
    if use_critic:
        rollout[Postprocessing.ADVANTAGES] = returns - np.asarray(rollout[vf_preds], np.float32)
        rollout[Postprocessing.VALUE_TARGETS] = returns
    else:
        rollout[Postprocessing.ADVANTAGES] = returns
        rollout[Postprocessing.VALUE_TARGETS] = np.zeros_like(returns)
    return rollout


def add_one_ts_to_episodes_and_truncate(episodes: Episodes) -> list[int]:
    """Add a step to each episode like `AddOneTsToEpisodesAndTruncate`; return the previous
    lengths.
    """
    lengths = [len(each) for each in episodes]
    AddOneTsToEpisodesAndTruncate()(batch={}, episodes=episodes)
    return lengths
