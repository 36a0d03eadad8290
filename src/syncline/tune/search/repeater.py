"""`Repeater`: runs every configuration of a searcher several times, and tells it the average."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from syncline.tune.search.searcher import Searcher, SearcherWrapper

TRIAL_INDEX = "__trial_index__"
"""The key under which a configuration says which of its repeats it is, from 0: a seed, for
example.
"""


@dataclass
class _Group:
    """The repeats of one configuration."""

    primary_trial_id: str
    """The first repeat: the only one that the searcher knows."""

    config: dict[str, Any]
    started: int = 0
    results: list[dict[str, Any] | None] = field(default_factory=list)
    """Of the repeats that ended; None for those that failed or had no result."""


class Repeater(SearcherWrapper):
    """Suggests each configuration of `searcher` to `repeat` trials. The searcher sees one trial,
    whose metric is the mean of them all.

    Repeats that failed, or whose metric is missing or NaN, are left out of the mean. If all of them
    failed, the trial failed. Samples count trials: choose `num_samples` as a multiple of `repeat`;
    of a rest, the searcher never learns. Results during the trials are not passed on.

    Args:
        searcher: What suggests.
        repeat: How often each configuration runs, 1 or more.
        set_index: Whether configurations get the number of the repeat, from 0, under the key
            `TRIAL_INDEX`.
    """

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        if not isinstance(repeat, int) or repeat < 1:
            raise ValueError(f"`repeat` must be a whole number, 1 or more, not {repeat!r}.")
        super().__init__(searcher)
        self.repeat = repeat
        self._set_index = set_index
        self._groups: dict[str, _Group] = {}
        """Of the trials that run."""
        self._current: _Group | None = None
        """The group that has repeats to be started."""

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._current is None:
            config = self.searcher.suggest(trial_id)
            if not isinstance(config, dict):
                return config
            self._current = _Group(primary_trial_id=trial_id, config=config)
        group = self._current
        self._groups[trial_id] = group
        config = (
            {**group.config, TRIAL_INDEX: group.started} if self._set_index else dict(group.config)
        )
        group.started += 1
        if group.started == self.repeat:
            self._current = None
        return config

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Is kept from the searcher, which would see one repeat as the whole."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        group = self._groups.pop(trial_id, None)
        if group is None:
            return
        group.results.append(None if error else result)
        if len(group.results) == self.repeat:
            failed = all(one is None for one in group.results)
            self.searcher.on_trial_complete(
                group.primary_trial_id,
                result=None if failed else self._mean(group.results),
                error=failed,
            )

    def _mean(self, results: list[dict[str, Any] | None]) -> dict[str, Any]:
        names = [self.metric] if isinstance(self.metric, str) else self.metric or []
        return {
            name: _mean_of([result[name] for result in results if result and name in result])
            for name in names
        }


def _mean_of(values: list[float]) -> float:
    known = [float(value) for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan
