"""Searchers around another searcher: `ConcurrencyLimiter` limits its concurrent trials, `Repeater`
repeats its configurations.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field

from syncline.tune.result import Config, Metrics
from syncline.tune.search.searcher import MetricNames, Modes, Searcher, set_search_properties

TRIAL_INDEX = "__trial_index__"
"""Key of the configuration for the number of the repeat, from 0; usable as a seed."""


class SearcherWrapper(Searcher):
    """Base of searchers around another one, `searcher`, to which all methods are forwarded.

    The state does not contain the state of the inner searcher.
    """

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(
                f"{type(self).__name__} needs a Searcher, not {searcher!r}. To limit the trials of "
                f"a BasicVariantGenerator, use BasicVariantGenerator(max_concurrent=...)."
            )
        self.searcher = searcher

    @property
    def metric(self) -> MetricNames:
        return self.searcher.metric

    @property
    def mode(self) -> Modes:
        return self.searcher.mode

    def set_search_properties(
        self, metric: MetricNames, mode: Modes, config: Config, **spec: object
    ) -> bool:
        return set_search_properties(self.searcher, metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> Config | str | None:
        return self.searcher.suggest(trial_id)

    def on_trial_result(self, trial_id: str, result: Metrics) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: Metrics | None = None, error: bool = False
    ) -> None:
        self.searcher.on_trial_complete(trial_id, result=result, error=error)

    def on_pause(self, trial_id: str) -> None:
        self.searcher.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self.searcher.on_unpause(trial_id)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        return self.searcher.set_max_concurrency(max_concurrent)

    def add_evaluated_point(
        self,
        parameters: Config,
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        self.searcher.add_evaluated_point(parameters, value, error, pruned, intermediate_values)

    def get_state(self) -> dict[str, object]:
        # One deepcopy call for all attributes keeps shared objects shared.
        return copy.deepcopy(
            {name: value for name, value in self.__dict__.items() if name != "searcher"}
        )

    def set_state(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    def save(self, checkpoint_path: str) -> None:
        """Write the state of the inner searcher, which can be restored without the wrapper."""
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        self.searcher.restore(checkpoint_path)


class ConcurrencyLimiter(SearcherWrapper):
    """Suggest nothing while `max_concurrent` trials of `searcher` are running. If the searcher
    implements `set_max_concurrency`, it enforces the limit.

    Args:
        searcher: The inner searcher.
        max_concurrent: Maximal number of concurrent trials, at least 1.
        batch: If True, report results to the searcher when all its suggested trials have ended, so
            that it suggests in batches.

    Raises:
        ValueError: `max_concurrent` is not an integer of at least 1.
        TypeError: `searcher` is not a Searcher.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        if not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ValueError(
                f"`max_concurrent` must be an integer of at least 1, not {max_concurrent!r}."
            )
        super().__init__(searcher)
        self.max_concurrent = max_concurrent
        self.batch = batch
        self.live_trials: set[str] = set()
        """Suggested trials whose end has not been reported to the searcher."""
        self.cached_results: dict[str, tuple[Metrics | None, bool]] = {}
        """Results of ended trials of an unfinished batch."""
        self._limit_concurrency = not searcher.set_max_concurrency(max_concurrent)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self.max_concurrent = max_concurrent
        self._limit_concurrency = not self.searcher.set_max_concurrency(max_concurrent)
        return True

    def set_search_properties(
        self, metric: MetricNames, mode: Modes, config: Config, **spec: object
    ) -> bool:
        # The answer of the searcher may have changed since the constructor.
        self._limit_concurrency = not self.searcher.set_max_concurrency(self.max_concurrent)
        return super().set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> Config | str | None:
        if not self._limit_concurrency:
            return self.searcher.suggest(trial_id)
        if len(self.live_trials) >= self.max_concurrent:
            return None
        suggestion = self.searcher.suggest(trial_id)
        if isinstance(suggestion, dict):
            self.live_trials.add(trial_id)
        return suggestion

    def on_trial_complete(
        self, trial_id: str, result: Metrics | None = None, error: bool = False
    ) -> None:
        if not self._limit_concurrency:
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
        elif trial_id in self.live_trials:
            self.cached_results[trial_id] = (result, error)
            if not self.batch or len(self.cached_results) == len(self.live_trials):
                self._report_cached_results()

    def _report_cached_results(self) -> None:
        for trial_id, (result, error) in self.cached_results.items():
            self.live_trials.discard(trial_id)
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
        self.cached_results = {}


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
