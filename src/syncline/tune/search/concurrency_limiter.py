"""`ConcurrencyLimiter`: lets only so many of a searcher's trials run at once."""

from __future__ import annotations

from typing import Any

from syncline.tune.search.searcher import Searcher, SearcherWrapper


class ConcurrencyLimiter(SearcherWrapper):
    """Suggests nothing while `max_concurrent` of the trials of `searcher` run.

    A searcher that limits its trials itself is told the number, and then left to it.

    Args:
        searcher: What suggests.
        max_concurrent: So many trials at once, 1 or more.
        batch: Whether the searcher learns of results only when all that it suggested has ended, so
            that it suggests in batches.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        if not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ValueError(
                f"`max_concurrent` must be a whole number of trials, 1 or more, not {max_concurrent!r}."
            )
        super().__init__(searcher)
        self.max_concurrent = max_concurrent
        self.batch = batch
        self.live_trials: set[str] = set()
        """Suggested, and not ended yet as far as the searcher knows."""
        self.cached_results: dict[str, tuple[dict[str, Any] | None, bool]] = {}
        """Ended, but the batch has not."""
        self._limit_concurrency = not searcher.set_max_concurrency(max_concurrent)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self.max_concurrent = max_concurrent
        self._limit_concurrency = not self.searcher.set_max_concurrency(max_concurrent)
        return True

    def set_search_properties(
        self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any
    ) -> bool:
        # The searcher may know only now how it works.
        self._limit_concurrency = not self.searcher.set_max_concurrency(self.max_concurrent)
        return super().set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if not self._limit_concurrency:
            return self.searcher.suggest(trial_id)
        if len(self.live_trials) >= self.max_concurrent:
            return None
        suggestion = self.searcher.suggest(trial_id)
        if isinstance(suggestion, dict):
            self.live_trials.add(trial_id)
        return suggestion

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        if not self._limit_concurrency:
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
        elif trial_id in self.live_trials:
            self.cached_results[trial_id] = (result, error)
            if not self.batch or len(self.cached_results) == len(self.live_trials):
                self._hand_over()

    def _hand_over(self) -> None:
        for trial_id, (result, error) in self.cached_results.items():
            self.live_trials.discard(trial_id)
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
        self.cached_results = {}
