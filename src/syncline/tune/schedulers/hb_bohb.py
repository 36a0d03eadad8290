"""`HyperBandForBOHB`: HyperBand for the searcher `TuneBOHB`.

Falkner, Klein, Hutter: BOHB, Robust and Efficient Hyperparameter Optimization at Scale, ICML 2018,
https://arxiv.org/abs/1807.01774. The searcher models the metric at each budget. Therefore results
at a milestone contain the budget, and the searcher is notified of paused trials.
"""

from __future__ import annotations

from syncline.tune.experiment.trial import Trial
from syncline.tune.result import Metrics
from syncline.tune.schedulers.hyperband import HyperBandScheduler
from syncline.tune.schedulers.trial_scheduler import ControllerView

_INFO = "hyperband_info"


class HyperBandForBOHB(HyperBandScheduler):
    """HyperBand that starts with the largest bracket, for the searcher `TuneBOHB`.

    Results at a milestone get `hyperband_info: {"budget": milestone}`, all others an empty
    `hyperband_info`. The searcher's `on_pause` and `on_unpause` are called, so that paused trials
    do not count toward its `max_concurrent`.
    """

    def _bracket_order(self, largest: int) -> list[int]:
        return list(range(largest, -1, -1))

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> str:
        """Add `hyperband_info` to the result and decide like HyperBand."""
        result[_INFO] = {}
        decision = super().on_trial_result(tune_controller, trial, result)
        if decision == self.PAUSE:
            _notify(tune_controller.search_alg, "on_pause", trial.trial_id)
        return decision

    def _on_milestone(self, result: Metrics, milestone: float) -> None:
        result[_INFO] = {"budget": milestone}

    def _on_release(self, controller: ControllerView, trial_id: str) -> None:
        _notify(controller.search_alg, "on_unpause", trial_id)


def _notify(search_alg: object, method: str, trial_id: str) -> None:
    """Call `method` of the searcher or of the searcher inside it, if either has it."""
    for searcher in (search_alg, getattr(search_alg, "searcher", None)):
        if hasattr(searcher, method):
            getattr(searcher, method)(trial_id)
            return
