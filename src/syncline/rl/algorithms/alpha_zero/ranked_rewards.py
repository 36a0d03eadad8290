"""Ranked rewards (Laterre et al. 2018, https://arxiv.org/abs/1807.01672): one player competes with
its own recent returns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np


class RankedRewards:
    """Returns of recent episodes.

    Args:
        percentile: Percentile of these returns that an episode must reach.
        length: Number of episodes to remember.
    """

    def __init__(self, percentile: float, length: int) -> None:
        self._percentile = percentile
        self._returns: deque[float] = deque(maxlen=length)

    def add(self, returns: Iterable[float]) -> None:
        """Remember the returns of episodes."""
        self._returns.extend(returns)

    def threshold(self) -> float:
        """Return the threshold of returns that count as a win; minus infinity without episodes."""
        if not self._returns:
            return -np.inf
        return float(np.percentile(np.array(self._returns), self._percentile))

    def get_state(self) -> list[float]:
        """Return the returns."""
        return list(self._returns)

    def set_state(self, state: list[float]) -> None:
        """Set the returns."""
        self._returns.clear()
        self._returns.extend(state)


def ranked(value: float, threshold: float) -> float:
    """Return 1 if a return reaches the threshold, else -1."""
    return 1.0 if value >= threshold else -1.0
