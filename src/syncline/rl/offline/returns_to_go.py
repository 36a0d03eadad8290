"""Returns to go of recorded episodes, computed per step from whole episodes.

G_t = sum_k gamma^k r_{t+k} until the end of the recording. If the recording does not end in a
terminal state, the learner must add the value of the last observation; the columns therefore
include its factor, gamma^(T - t), and the observation.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from syncline.rl.columns.names import Columns
from syncline.rl.offline.offline_data import OfflineData
from syncline.rl.offline.prelearner import OfflinePreLearner, Rows

BOOTSTRAP_DISCOUNTS = "bootstrap_discounts"
"""Factors of the values of the last observations; 0 after terminal states, [B]."""
LAST_OBS = "last_obs"
"""Last observations of the episodes, [B, …]."""


class ReturnsPreLearner(OfflinePreLearner):
    """Adds returns to recorded episodes; `ReturnsData` adds them to rows of single steps."""

    def __call__(self, batch: Rows) -> Rows:
        """Return the steps of recorded rows, as columns [B, ...]."""
        rows = super().__call__(batch)
        return with_returns(rows, self.config.gamma) if self.config.input_read_episodes else rows


class ReturnsData(OfflineData):
    """Recorded steps with their returns, computed from the rows of each episode."""

    def finished(self, steps: Any) -> Any:
        """Return the dataset with the columns of returns."""
        names = steps.columns() or []
        if Columns.RETURNS_TO_GO in names:
            return steps
        missing = {Columns.EPS_ID, Columns.REWARDS, Columns.TERMINATEDS} - set(names)
        if missing:
            raise ValueError(
                f"Returns need the columns {sorted(missing)}; the data have {sorted(names)}. Name "
                "them in `input_read_schema`, such as {'eps_id': 'episode'}, or provide returns "
                f"in a column {Columns.RETURNS_TO_GO!r}."
            )
        return steps.groupby(Columns.EPS_ID).map_groups(
            partial(with_returns, gamma=self.config.gamma), batch_format="numpy"
        )


def with_returns(rows: Rows, gamma: float) -> Rows:
    """Return rows of whole episodes with the columns of returns, without next observations.

    Args:
        rows: Columns [B, …]; rows of an episode are ordered by time or by the column "t".
        gamma: Discount factor.
    """
    order, starts = _order(rows)
    rows = {name: column[order] for name, column in rows.items()}
    lengths = np.diff([*starts, len(order)])
    last = starts + lengths - 1
    left = np.repeat(last, lengths) - np.arange(len(order))  # steps to the last one
    returns = np.zeros(len(order))
    following = np.zeros(len(starts))
    for number in range(int(lengths.max(initial=0))):
        goes_on = number < lengths
        at = last[goes_on] - number
        following[goes_on] = rows[Columns.REWARDS][at] + gamma * following[goes_on]
        returns[at] = following[goes_on]
    finals = {
        name.replace(Columns.NEXT_OBS, LAST_OBS, 1): np.repeat(column[last], lengths, axis=0)
        for name, column in rows.items()
        if name.partition("/")[0] == Columns.NEXT_OBS
    }
    unfinished = ~np.repeat(rows[Columns.TERMINATEDS][last].astype(bool), lengths)
    kept = {
        name: column
        for name, column in rows.items()
        if name.partition("/")[0] not in (Columns.NEXT_OBS, Columns.T)
    }
    return {
        **kept,
        **finals,
        Columns.RETURNS_TO_GO: returns.astype(np.float32),
        BOOTSTRAP_DISCOUNTS: np.where(unfinished & bool(finals), gamma ** (left + 1.0), 0.0).astype(
            np.float32
        ),
    }


def _order(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows ordered by episode, and the index of the first row of each episode."""
    _, episodes = np.unique(rows[Columns.EPS_ID], return_inverse=True)
    time = rows.get(Columns.T, np.arange(len(episodes)))
    order = np.lexsort((time, episodes))
    changes = np.flatnonzero(np.diff(episodes[order])) + 1
    return order, np.concatenate([[0], changes]).astype(np.int64)
