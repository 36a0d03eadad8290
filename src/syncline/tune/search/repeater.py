"""`Repeater`, a searcher that repeats the configurations of another one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from syncline.tune.result import Config, Metrics
from syncline.tune.search.searcher import Searcher, SearcherWrapper

TRIAL_INDEX = "__trial_index__"
"""Key of the configuration for the number of the repeat, from 0; usable as a seed."""


@dataclass
class _Group:
    """Repeats of one configuration."""

    primary_trial_id: str
    """Id of the first repeat, the only one known to the searcher."""

    config: Config
    started: int = 0
    results: list[Metrics | None] = field(default_factory=list)
    """Last results of ended repeats; None for a failure or no result."""


class Repeater(SearcherWrapper):
    """Run each configuration of `searcher` in `repeat` trials. To the searcher, they are one trial
    whose metric is the mean over the repeats.

    Repeats that failed, or whose metric is missing or NaN, are excluded from the mean. If all
    repeats failed, the trial failed. `num_samples` counts repeats and should be a multiple of
    `repeat`; an incomplete last group is not reported. Intermediate results are not reported.

    Args:
        searcher: The inner searcher.
        repeat: Number of trials of each configuration, at least 1.
        set_index: If True, add the number of the repeat, from 0, to the configuration as
            `TRIAL_INDEX`.

    Raises:
        ValueError: `repeat` is not an integer of at least 1.
        TypeError: `searcher` is not a Searcher.
    """

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        if not isinstance(repeat, int) or repeat < 1:
            raise ValueError(f"`repeat` must be an integer of at least 1, not {repeat!r}.")
        super().__init__(searcher)
        self.repeat = repeat
        self._set_index = set_index
        self._groups: dict[str, _Group] = {}
        """Groups by running trial."""
        self._current: _Group | None = None
        """Group with repeats that have not started."""

    def suggest(self, trial_id: str) -> Config | str | None:
        if self._current is None:
            config = self.searcher.suggest(trial_id)
            if not isinstance(config, dict):
                return config
            self._current = _Group(primary_trial_id=trial_id, config=config)
        group = self._current
        self._groups[trial_id] = group
        config = dict(group.config)
        if self._set_index:
            config[TRIAL_INDEX] = group.started
        group.started += 1
        if group.started == self.repeat:
            self._current = None
        return config

    def on_trial_result(self, trial_id: str, result: Metrics) -> None:
        """Ignore the result, because the searcher would take it for the mean."""

    def on_trial_complete(
        self, trial_id: str, result: Metrics | None = None, error: bool = False
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

    def _mean(self, results: list[Metrics | None]) -> Metrics:
        names = [self.metric] if isinstance(self.metric, str) else self.metric or []
        return {
            name: _mean_of([result[name] for result in results if result and name in result])
            for name in names
        }


def _mean_of(values: list[float]) -> float:
    known = [float(value) for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan
