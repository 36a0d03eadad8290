"""When a training ends: `StopCriteria`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from syncline.suggestions import did_you_mean
from syncline.train import metric_values
from syncline.train.metric_values import Metrics

RETURN = "env_runners/episode_return_mean"
STEPS = "num_env_steps_sampled_lifetime"
ITERATIONS = "training_iteration"
SECONDS = "time_total_s"
ALIASES = {
    "episode_reward_mean": RETURN,
    "episode_return_mean": RETURN,
    "episode_len_mean": "env_runners/episode_len_mean",
    "timesteps_total": STEPS,
    "num_env_steps_sampled": STEPS,
    "env_steps": STEPS,
}
"""Names of older releases, and short ones."""
_COUNTERS = frozenset({STEPS, ITERATIONS, SECONDS})
"""Metrics that grow steadily, so that the remaining time can be estimated."""


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """How far a training is."""

    share: float
    """Share of the nearest criterion, between 0 and 1."""
    left_s: float
    """Seconds until then, at the speed so far."""
    metric: str


class StopCriteria:
    """Metrics and their stop values; the first one reached ends the training.

    Args:
        criteria: Least values by metric; nested metrics as `a/b`. Names of older releases work.

    Raises:
        ValueError: A value is no number.
    """

    def __init__(self, criteria: Mapping[str, object]) -> None:
        self.criteria: dict[str, float] = {}
        for name, value in criteria.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"The stop criterion {name}={value!r} is no number.")
            self.criteria[ALIASES.get(name, name)] = value
        self._first: dict[str, tuple[float, float]] = {}

    def reached(self, result: Metrics) -> str:
        """Return the criterion that a result fulfils as a text; "" if it fulfils none.

        Raises:
            ValueError: The result lacks a metric; the message has the nearest name.
        """
        for name, least in self.criteria.items():
            value = metric_values.lookup(result, name)
            if value is None and name.startswith("evaluation/"):
                continue  # not in every iteration
            if not isinstance(value, (int, float)):
                numbers = [
                    known
                    for known, each in metric_values.flatten(result).items()
                    if isinstance(each, (int, float)) and not known.startswith("config/")
                ]
                raise ValueError(
                    f"The stop criterion {name!r} is not among the results."
                    f"{did_you_mean(name, numbers)} `metrics.jsonl` of the run has their names."
                )
            if value >= least:
                return f"{name} = {value:.6g} has reached {least:.6g}"
        return ""

    def remaining(self, result: Metrics, now: float) -> Remaining | None:
        """Return how far the training is; None if no criterion counts steps, iterations or time.

        Args:
            result: Latest result.
            now: Time in seconds.
        """
        found = []
        for name, end in self.criteria.items():
            value = metric_values.lookup(result, name)
            if name not in _COUNTERS or not isinstance(value, (int, float)) or end <= 0:
                continue
            first, began = self._first.setdefault(name, (value, now))
            per_s = (value - first) / (now - began) if now > began else 0.0
            if per_s > 0:
                left_s = max(0.0, end - value) / per_s
                found.append(Remaining(share=min(1.0, value / end), left_s=left_s, metric=name))
        return min(found, key=lambda each: each.left_s, default=None)
