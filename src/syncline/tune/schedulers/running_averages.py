"""`RunningAverages`: the average score of every trial up to every age, such that the others' median
at an age is at hand.

A result costs no more with thousands of trials than with few: each trial leaves its average at the
ages that it passes, and each age keeps its averages sorted. Only an age that no trial has reported
at before is worked out from all trials. Ages are exact up to 128 and rounded down by less than 2 %
above (7 binary digits), so there are few of them even where an age is a time in seconds.
"""

from __future__ import annotations

import bisect
import math
from array import array
from dataclasses import dataclass, field

_STEPS = 64
"""So many ages between a power of two and the next."""
_YOUNGEST = -(2**20)


@dataclass(frozen=True)
class Others:
    """What other trials have at an age."""

    count: int
    median: float
    """Of their average scores; not a number without any."""


@dataclass
class _Series:
    """One trial: its average at each age where it has reported, the ages ascending."""

    ages: array[int] = field(default_factory=lambda: array("q"))
    averages: array[float] = field(default_factory=lambda: array("d"))
    total: float = 0.0
    count: int = 0

    def at(self, age: int) -> float:
        """The average when it had come to `age`; not a number before its first report, and for ever
        after one that is not finite.
        """
        position = bisect.bisect_right(self.ages, age)
        return self.averages[position - 1] if position else math.nan

    @property
    def age(self) -> int:
        """Its latest."""
        return self.ages[-1] if self.ages else _YOUNGEST - 1


class RunningAverages:
    """Average scores of trials by age."""

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}
        self._known: list[int] = []
        """Ages that somebody has reported at, ascending."""
        self._averages: dict[int, array[float]] = {}
        """For each known age, the averages of those who have come to it, ascending."""

    def of_others(self, trial_id: str, time: float) -> Others:
        """What all others have at `time` that have come so far, or further."""
        age = rounded_age(time)
        averages = self._at(age)
        own = self._series.get(trial_id)
        value = own.at(age) if own is not None and own.age >= age else math.nan
        skipped = bisect.bisect_left(averages, value) if math.isfinite(value) else len(averages)
        count = len(averages) - math.isfinite(value)
        if not count:
            return Others(count=0, median=math.nan)
        lower, upper = (
            averages[middle + (middle >= skipped)] for middle in ((count - 1) // 2, count // 2)
        )
        return Others(count=count, median=(lower + upper) / 2)

    def add(self, trial_id: str, time: float, score: float) -> None:
        """A trial has reported. Where it has reported before, because it has gone back to a
        checkpoint, what it said then counts.
        """
        age = rounded_age(time)
        series = self._series.setdefault(trial_id, _Series())
        if age < series.age:
            return
        here = self._at(age)
        if age == series.age:
            _discard(here, series.averages.pop())
            series.ages.pop()
        elif series.ages:
            for passed in self._known[
                bisect.bisect_right(self._known, series.age) : bisect.bisect_left(self._known, age)
            ]:
                _insert(self._averages[passed], series.averages[-1])
        series.total += score
        series.count += 1
        series.ages.append(age)
        series.averages.append(series.total / series.count)
        _insert(here, series.averages[-1])

    def _at(self, age: int) -> array[float]:
        if age not in self._averages:
            bisect.insort(self._known, age)
            reached = (series.at(age) for series in self._series.values() if series.age >= age)
            self._averages[age] = array(
                "d", sorted(average for average in reached if math.isfinite(average))
            )
        return self._averages[age]


def rounded_age(time: float) -> int:
    """The number of the age that `time` belongs to; later times have no lower number."""
    if time <= 0:
        return _YOUNGEST
    mantissa, exponent = math.frexp(time)
    return exponent * _STEPS + int((mantissa - 0.5) * 2 * _STEPS)


def _insert(averages: array[float], average: float) -> None:
    if math.isfinite(average):
        bisect.insort(averages, average)


def _discard(averages: array[float], average: float) -> None:
    if math.isfinite(average):
        del averages[bisect.bisect_left(averages, average)]
