"""Grouping of all trials by status, and selection of the trials to display. Pure.

`group_trials` is the only step whose cost grows with the number of trials: a few milliseconds for
10 000 trials, at most twice a second. Only the displayed trials are sorted.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from syncline.train import metric_values
from syncline.tune.experiment.trial import Trial

ORDER = (Trial.RUNNING, Trial.PAUSED, Trial.PENDING, Trial.TERMINATED, Trial.ERROR)
"""Order of statuses in tables."""
_WITH_RESULTS = (Trial.TERMINATED, Trial.ERROR, Trial.PAUSED)
"""Statuses that share the rows left by running trials."""
_INFINITY = float("inf")


@dataclass(frozen=True, kw_only=True)
class TrialGroups:
    """All trials of a search by status."""

    by_status: Mapping[str, Sequence[Trial]]
    """Trials per status, in order of creation; statuses without trials are missing."""

    best: Trial | None = None
    """The trial with the best last value that is finite."""

    ranking: Sequence[tuple[float, int]] = field(default_factory=list)
    """Score (higher is better) and negative position of each TERMINATED trial, unsorted."""

    failed: Sequence[Trial] = field(default_factory=list)
    """Trials that failed at least once, including restarted ones."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of trials per status, in the order of tables."""
        return {status: len(self.by_status[status]) for status in ORDER if status in self.by_status}


def group_trials(
    trials: Sequence[Trial], metric: str | None = None, mode: str | None = None
) -> TrialGroups:
    """Group all trials in one pass. The best trial and the ranking need a metric and a mode."""
    by_status: dict[str, list[Trial]] = {}
    failed: list[Trial] = []
    for trial in trials:
        status = trial.status
        group = by_status.get(status)
        if group is None:
            group = by_status[status] = []
        group.append(trial)
        if trial.num_failures or status == Trial.ERROR:
            failed.append(trial)
    if metric is None or mode is None:
        return TrialGroups(by_status=by_status, failed=failed)
    best, high = None, -_INFINITY
    ranking: list[tuple[float, int]] = []
    for status, group in by_status.items():
        terminated = status == Trial.TERMINATED
        for position, trial in enumerate(group):
            value = _goodness(trial, metric, mode)
            if value > high and value != _INFINITY:
                best, high = trial, value
            if terminated:
                ranking.append((value, -position))
    return TrialGroups(by_status=by_status, best=best, ranking=ranking, failed=failed)


def select_trials(groups: TrialGroups, limit: int | None, *, best_first: bool) -> list[Trial]:
    """Return at most `limit` trials in the order of tables: the running trials, then some of each
    other status.

    Args:
        groups: All trials.
        limit: Maximum number of trials; None for all.
        best_first: Select the best TERMINATED trials, sorted, instead of the latest. Needs a
            ranking.
    """
    sizes = groups.counts
    rows = _shares(sizes, sum(sizes.values()) if limit is None else limit)
    chosen: list[Trial] = []
    for status, count in rows.items():
        group = groups.by_status[status]
        if status == Trial.TERMINATED and best_first and groups.ranking:
            chosen += [group[-position] for _, position in heapq.nlargest(count, groups.ranking)]
        elif status == Trial.TERMINATED or status == Trial.ERROR:
            chosen += group[len(group) - count :]
        else:
            chosen += group[:count]
    return chosen


def _shares(sizes: Mapping[str, int], limit: int) -> dict[str, int]:
    """Distribute rows over statuses: one each, then the running trials, then equal parts for trials
    with results, and last the pending trials.
    """
    shares = dict.fromkeys(sizes, 0)
    left = limit

    def give(status: str, rows: int) -> None:
        nonlocal left
        more = min(rows, sizes[status] - shares[status], left)
        shares[status] += more
        left -= more

    for status in sizes:
        give(status, 1)
    if Trial.RUNNING in sizes:
        give(Trial.RUNNING, left)
    claims = [status for status in _WITH_RESULTS if status in sizes]
    while left and claims:
        each = max(1, left // len(claims))
        for status in claims:
            give(status, each)
        claims = [status for status in claims if shares[status] < sizes[status]]
    if Trial.PENDING in sizes:
        give(Trial.PENDING, left)
    return shares


def _goodness(trial: Trial, metric: str, mode: str) -> float:
    """Return the last value, negated for mode "min"; minus infinity if it is not a number."""
    value = trial.last_result.get(metric)
    if value.__class__ is not float:
        score = metric_values.score(trial.last_result, metric, "max")
        value = -_INFINITY if score is None else score
        if score is None:
            return value
    if value != value:
        return -_INFINITY
    return value if mode == "max" else -value
