"""`Population`: who is how good and how far, for population based training. Every change costs a
binary search, not a sort.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Place = Literal["upper", "middle", "lower"]


@dataclass
class Member:
    """One trial of the population."""

    trial_id: str
    tag: str
    """The trial's experiment tag before anything was changed."""
    index: int
    """Its number in the population; decides between equals."""
    score: float | None = None
    """At its latest perturbation; more is better."""
    trained_to: float = 0
    """The time of `score`, or where it goes on if it has got another's weights since."""
    perturbed_at: float = 0
    """When it was looked at last; with another's weights, when it began to train with them."""
    awaits_weights: bool = False
    """Another's weights are on their way to it, or it has trained with them and not been looked at
    since.
    """

    @property
    def rank(self) -> tuple[float, int, str]:
        """Ascending, the worst first."""
        return (-math.inf if self.score is None else self.score, self.index, self.trial_id)

    @property
    def progress(self) -> tuple[float, int, str]:
        """Ascending, the one that is furthest behind first."""
        return (self.trained_to, self.index, self.trial_id)


class Population:
    """All trials of a search, those that have ended included; what they have may still be
    cloned.
    """

    def __init__(self, quantile_fraction: float) -> None:
        self._quantile_fraction = quantile_fraction
        self._members: dict[str, Member] = {}
        self._ranking: list[tuple[float, int, str]] = []
        """Of members that have a score."""
        self._behind: list[tuple[float, int, str]] = []
        """Of members that have not ended."""

    def __getitem__(self, trial_id: str) -> Member:
        return self._members[trial_id]

    def __contains__(self, trial_id: str) -> bool:
        return trial_id in self._members

    def join(self, trial_id: str, tag: str) -> None:
        """A trial is new, or comes again: then it is who it was."""
        member = self._members.setdefault(trial_id, Member(trial_id, tag, len(self._members)))
        self._put(self._behind, member.progress)

    def set_score(self, trial_id: str, score: float) -> None:
        """How good a trial is now."""
        member = self._members[trial_id]
        self._drop(self._ranking, member.rank)
        member.score = score
        self._put(self._ranking, member.rank)

    def set_progress(self, trial_id: str, trained_to: float) -> None:
        """How far a trial is now."""
        member = self._members[trial_id]
        is_live = self._drop(self._behind, member.progress)
        member.trained_to = trained_to
        if is_live:
            self._put(self._behind, member.progress)

    def end(self, trial_id: str, *, may_be_cloned: bool) -> None:
        """A trial has ended."""
        member = self._members.get(trial_id)
        if member is None:
            return
        self._drop(self._behind, member.progress)
        if not may_be_cloned:
            self._drop(self._ranking, member.rank)
            member.score = None

    def is_live(self, trial_id: str) -> bool:
        """Whether it has not ended."""
        return self._holds(self._behind, self._members[trial_id].progress)

    def by_progress(self) -> Iterator[Member]:
        """Those that have not ended, the one furthest behind first."""
        for _, _, trial_id in self._behind:
            yield self._members[trial_id]

    def least_progress(self) -> float:
        """Of those that have not ended; infinite without any."""
        return self._behind[0][0] if self._behind else math.inf

    def most_progress(self) -> float:
        """Of those that have not ended; 0 without any."""
        return self._behind[-1][0] if self._behind else 0

    def quantile_size(self) -> int:
        """How many are in the upper quantile, and in the lower: the fraction, rounded up, and never
        more than half.
        """
        ranked = len(self._ranking)
        if ranked < 2:
            return 0
        return min(math.ceil(ranked * self._quantile_fraction), ranked // 2)

    def place(self, trial_id: str) -> Place:
        """Where a trial stands among all that have a score."""
        member, size = self._members[trial_id], self.quantile_size()
        if member.score is None or not size:
            return "middle"
        position = bisect.bisect_left(self._ranking, member.rank)
        if position < size:
            return "lower"
        return "upper" if position >= len(self._ranking) - size else "middle"

    def from_top(self, position: int) -> Member:
        """The best at 0, the next best at 1; the upper quantile is below `quantile_size()`."""
        return self._members[self._ranking[-1 - position][2]]

    @staticmethod
    def _holds(ordered: list[tuple[float, int, str]], entry: tuple[float, int, str]) -> bool:
        position = bisect.bisect_left(ordered, entry)
        return position < len(ordered) and ordered[position] == entry

    @classmethod
    def _put(cls, ordered: list[tuple[float, int, str]], entry: tuple[float, int, str]) -> None:
        if not cls._holds(ordered, entry):
            bisect.insort(ordered, entry)

    @classmethod
    def _drop(cls, ordered: list[tuple[float, int, str]], entry: tuple[float, int, str]) -> bool:
        if not cls._holds(ordered, entry):
            return False
        del ordered[bisect.bisect_left(ordered, entry)]
        return True
