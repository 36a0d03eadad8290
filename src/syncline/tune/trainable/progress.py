"""`Progress`: how far a trial is, counted over all its starts; what `train()` fills into results
from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syncline.tune.result import (
    EPISODES_THIS_ITER,
    EPISODES_TOTAL,
    ITERATIONS_SINCE_RESTORE,
    TIME_SINCE_RESTORE,
    TIME_THIS_ITER_S,
    TIME_TOTAL_S,
    TIMESTEPS_THIS_ITER,
    TIMESTEPS_TOTAL,
    TRAINING_ITERATION,
)


@dataclass(kw_only=True)
class Progress:
    """Counters of one trainable."""

    iteration: int = 0
    """How many results there were."""
    time_total_s: float = 0.0
    """How long they took."""
    timesteps_total: float | None = None
    """Sum of `timesteps_this_iter`; None if that was never reported."""
    episodes_total: float | None = None
    """Sum of `episodes_this_iter`; None if that was never reported."""
    iterations_since_restore: int = 0
    """How many results there were since this start."""
    time_since_restore: float = 0.0
    """How long they took, in seconds."""
    timesteps_since_restore: float = 0
    """Steps since this start."""

    @classmethod
    def after(cls, result: Mapping[str, Any]) -> Progress:
        """What a trainable counts on from that is restored to where it had `result`, or to what
        `totals` returned.
        """
        return cls(
            iteration=int(result.get(TRAINING_ITERATION) or 0),
            time_total_s=float(result.get(TIME_TOTAL_S) or 0.0),
            timesteps_total=result.get(TIMESTEPS_TOTAL),
            episodes_total=result.get(EPISODES_TOTAL),
        )

    def totals(self) -> dict[str, Any]:
        """The counters that outlive a restart, under their names in results."""
        return {
            TRAINING_ITERATION: self.iteration,
            TIME_TOTAL_S: self.time_total_s,
            TIMESTEPS_TOTAL: self.timesteps_total,
            EPISODES_TOTAL: self.episodes_total,
        }

    def count(self, result: dict[str, Any], took_s: float) -> None:
        """One more result, that took so long unless it says otherwise itself. Totals that it does
        not have are filled in.
        """
        took_s = float(result.get(TIME_THIS_ITER_S, took_s))
        self.iteration += 1
        self.iterations_since_restore += 1
        self.time_total_s += took_s
        self.time_since_restore += took_s
        steps, episodes = result.get(TIMESTEPS_THIS_ITER), result.get(EPISODES_THIS_ITER)
        if steps is not None:
            self.timesteps_total = (self.timesteps_total or 0) + steps
            self.timesteps_since_restore += steps
        if episodes is not None:
            self.episodes_total = (self.episodes_total or 0) + episodes
        if self.timesteps_total is not None:
            result.setdefault(TIMESTEPS_TOTAL, self.timesteps_total)
        if self.episodes_total is not None:
            result.setdefault(EPISODES_TOTAL, self.episodes_total)
        result.setdefault(TRAINING_ITERATION, self.iteration)
        result[TIME_THIS_ITER_S] = took_s

    def filled(self) -> dict[str, Any]:
        """What is the same in every result, whatever it reports."""
        filled: dict[str, Any] = {
            TIME_TOTAL_S: self.time_total_s,
            TIME_SINCE_RESTORE: self.time_since_restore,
            ITERATIONS_SINCE_RESTORE: self.iterations_since_restore,
        }
        if self.timesteps_since_restore:
            filled["timesteps_since_restore"] = self.timesteps_since_restore
        return filled
