"""`HyperBandForBOHB`: HyperBand as the searcher BOHB wants it.

Falkner, Klein, Hutter: BOHB, Robust and Efficient Hyperparameter Optimization at Scale, ICML 2018,
https://arxiv.org/abs/1807.01774. The searcher models the metric at each budget, so it is told the
budget with every result at a milestone, and which trials wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncline.tune.schedulers.hyperband import HyperBandScheduler

if TYPE_CHECKING:
    from syncline.tune.experiment.trial import Trial
    from syncline.tune.schedulers.trial_scheduler import ControllerView

_INFO = "hyperband_info"


class HyperBandForBOHB(HyperBandScheduler):
    """HyperBand that starts with the largest bracket, for use with the searcher `TuneBOHB`.

    Results at a milestone get `hyperband_info: {"budget": milestone}`, all others an empty
    `hyperband_info`; the searcher's `on_pause` and `on_unpause` are called, so that trials which
    wait do not count against a limit of concurrent suggestions.
    """

    def _bracket_order(self, largest: int) -> list[int]:
        return list(range(largest, -1, -1))

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> str:
        """As HyperBand; the result is marked."""
        result[_INFO] = {}
        decision = super().on_trial_result(tune_controller, trial, result)
        if decision == self.PAUSE:
            _tell(tune_controller.search_alg, "on_pause", trial.trial_id)
        return decision

    def _on_milestone(self, result: dict[str, Any], milestone: float) -> None:
        result[_INFO] = {"budget": milestone}

    def _on_release(self, controller: ControllerView, trial_id: str) -> None:
        _tell(controller.search_alg, "on_unpause", trial_id)


def _tell(search_alg: Any, method: str, trial_id: str) -> None:
    """Call `method` of the searcher, which may be wrapped; searchers that do not have it need not
    know.
    """
    for searcher in (search_alg, getattr(search_alg, "searcher", None)):
        if hasattr(searcher, method):
            getattr(searcher, method)(trial_id)
            return
