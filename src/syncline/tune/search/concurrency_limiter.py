"""`ConcurrencyLimiter`, a searcher that limits the concurrent trials of another one."""

from __future__ import annotations

from syncline.tune.result import Config, Metrics
from syncline.tune.search.searcher import MetricNames, Modes, Searcher, SearcherWrapper


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
