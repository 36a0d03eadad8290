"""`Population`: the trials of population based training, sorted by score and by progress. Each
update costs a binary search instead of a sort.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Quantile = Literal["upper", "middle", "lower"]
_SortKey = tuple[float, int, str]


@dataclass
class Member:
    """One trial of the population."""

    trial_id: str
    tag: str
    """Experiment tag of the trial before the first perturbation."""
    index: int
    """Number in the population; breaks ties."""
    score: float | None = None
    """Score at the latest comparison; higher is better."""
    trained_to: float = 0
    """Time of `score`, or the time from which the trial continues with a donor's weights."""
    perturbed_at: float = 0
    """Time of the latest comparison, or the time from which the trial trains with a donor's
    weights.
    """
    awaits_weights: bool = False
    """True from the copy of a donor's weights until the next comparison."""

    @property
    def score_key(self) -> _SortKey:
        """Sort key by score, the worst first."""
        return (-math.inf if self.score is None else self.score, self.index, self.trial_id)

    @property
    def progress_key(self) -> _SortKey:
        """Sort key by progress, the least first."""
        return (self.trained_to, self.index, self.trial_id)


class Population:
    """All trials of a search, including ended ones, whose checkpoints can still be cloned."""

    def __init__(self, quantile_fraction: float) -> None:
        self._quantile_fraction = quantile_fraction
        self._members: dict[str, Member] = {}
        self._by_score: list[_SortKey] = []
        """Members with a score, the worst first."""
        self._by_progress: list[_SortKey] = []
        """Members that have not ended, the least progress first."""

    def __getitem__(self, trial_id: str) -> Member:
        return self._members[trial_id]

    def __contains__(self, trial_id: str) -> bool:
        return trial_id in self._members

    def add(self, trial_id: str, tag: str) -> None:
        """Add a new trial, or a retried one, which keeps its state."""
        member = self._members.setdefault(trial_id, Member(trial_id, tag, len(self._members)))
        _insert(self._by_progress, member.progress_key)

    def set_score(self, trial_id: str, score: float) -> None:
        """Set the score of a trial."""
        member = self._members[trial_id]
        _remove(self._by_score, member.score_key)
        member.score = score
        _insert(self._by_score, member.score_key)

    def set_progress(self, trial_id: str, trained_to: float) -> None:
        """Set the progress of a trial."""
        member = self._members[trial_id]
        is_live = _remove(self._by_progress, member.progress_key)
        member.trained_to = trained_to
        if is_live:
            _insert(self._by_progress, member.progress_key)

    def end(self, trial_id: str, *, may_be_cloned: bool) -> None:
        """Mark a trial as ended."""
        member = self._members.get(trial_id)
        if member is None:
            return
        _remove(self._by_progress, member.progress_key)
        if not may_be_cloned:
            _remove(self._by_score, member.score_key)
            member.score = None

    def is_live(self, trial_id: str) -> bool:
        """Return True if the trial has not ended."""
        return _contains(self._by_progress, self._members[trial_id].progress_key)

    def by_progress(self) -> Iterator[Member]:
        """Iterate over the trials that have not ended, the least progress first."""
        for _, _, trial_id in self._by_progress:
            yield self._members[trial_id]

    def least_progress(self) -> float:
        """Return the least progress of the trials that have not ended; inf without any."""
        return self._by_progress[0][0] if self._by_progress else math.inf

    def most_progress(self) -> float:
        """Return the most progress of the trials that have not ended; 0 without any."""
        return self._by_progress[-1][0] if self._by_progress else 0

    def quantile_size(self) -> int:
        """Return the number of trials in the upper and in the lower quantile: the fraction, rounded
        up, at most half of all.
        """
        scored = len(self._by_score)
        if scored < 2:
            return 0
        return min(math.ceil(scored * self._quantile_fraction), scored // 2)

    def quantile_of(self, trial_id: str) -> Quantile:
        """Return the quantile of a trial among all trials with a score."""
        member, size = self._members[trial_id], self.quantile_size()
        if member.score is None or not size:
            return "middle"
        position = bisect.bisect_left(self._by_score, member.score_key)
        if position < size:
            return "lower"
        return "upper" if position >= len(self._by_score) - size else "middle"

    def from_top(self, position: int) -> Member:
        """Return the trial at a position in descending order of scores; 0 is the best."""
        return self._members[self._by_score[-1 - position][2]]


def _contains(ordered: list[_SortKey], key: _SortKey) -> bool:
    position = bisect.bisect_left(ordered, key)
    return position < len(ordered) and ordered[position] == key


def _insert(ordered: list[_SortKey], key: _SortKey) -> None:
    if not _contains(ordered, key):
        bisect.insort(ordered, key)


def _remove(ordered: list[_SortKey], key: _SortKey) -> bool:
    if not _contains(ordered, key):
        return False
    del ordered[bisect.bisect_left(ordered, key)]
    return True
