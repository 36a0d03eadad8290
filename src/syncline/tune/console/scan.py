"""One walk through all trials, and the choice of those that are shown. Pure.

The walk is the only thing here whose cost grows with the number of trials; with 10 000 of them it
takes a few milliseconds, and reporters do it at most twice a second. Only what is shown is sorted.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from syncline.train import metric_values
from syncline.tune.experiment.trial import Trial

ORDER = (Trial.RUNNING, Trial.PAUSED, Trial.PENDING, Trial.TERMINATED, Trial.ERROR)
"""Of the states in tables."""
_WITH_RESULTS = (Trial.TERMINATED, Trial.ERROR, Trial.PAUSED)
"""Share the rows that running trials leave."""
_INFINITY = float("inf")


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What one walk has found."""

    by_status: Mapping[str, Sequence[Trial]]
    """Trials by state, in the order in which they were made; states that no trial has are
    missing.
    """

    best: Trial | None = None
    """The one with the best latest value, which is finite."""

    ranking: Sequence[tuple[float, int]] = field(default_factory=list)
    """Of the TERMINATED trials, how good (higher is better), and the negative position among them;
    unsorted.
    """

    failed: Sequence[Trial] = field(default_factory=list)
    """Those that have failed, also if they have gone on since."""

    @property
    def counts(self) -> dict[str, int]:
        """Trials by state, in the order of tables."""
        return {status: len(self.by_status[status]) for status in ORDER if status in self.by_status}


def scan(trials: Sequence[Trial], metric: str | None = None, mode: str | None = None) -> Scan:
    """Go through all trials once. Without a metric and a mode there is neither a best one nor a
    ranking.
    """
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
        return Scan(by_status=by_status, failed=failed)
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
    return Scan(by_status=by_status, best=best, ranking=ranking, failed=failed)


def choose(found: Scan, limit: int | None, *, best_first: bool) -> list[Trial]:
    """At most `limit` trials in the order of tables: the running ones first, then some of each
    other state.

    Args:
        found: The walk.
        limit: Rows; None for all trials.
        best_first: Take the best of the TERMINATED trials, sorted, instead of the latest. Needs a
            ranking.
    """
    sizes = found.counts
    rows = _shares(sizes, sum(sizes.values()) if limit is None else limit)
    chosen: list[Trial] = []
    for status, count in rows.items():
        group = found.by_status[status]
        if status == Trial.TERMINATED and best_first and found.ranking:
            chosen += [group[-position] for _, position in heapq.nlargest(count, found.ranking)]
        elif status == Trial.TERMINATED or status == Trial.ERROR:
            chosen += group[len(group) - count :]
        else:
            chosen += group[:count]
    return chosen


def _shares(sizes: Mapping[str, int], limit: int) -> dict[str, int]:
    """Rows for each state: one for each, then the running trials, then those that have results in
    equal parts, and last who waits.
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
    """The latest value, higher is better; minus infinity for what is no number."""
    value = trial.last_result.get(metric)
    if value.__class__ is not float:
        score = metric_values.score(trial.last_result, metric, "max")
        value = -_INFINITY if score is None else score
        if score is None:
            return value
    if value != value:
        return -_INFINITY
    return value if mode == "max" else -value
