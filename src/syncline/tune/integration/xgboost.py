"""`TuneReportCheckpointCallback`: reports the metrics that XGBoost logs in a trial, and the
model as checkpoints. Imports XGBoost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from syncline.train.xgboost import RayTrainReportCallback
from syncline.tune.result import Metrics


class TuneReportCheckpointCallback(RayTrainReportCallback):
    """Same as `syncline.train.xgboost.RayTrainReportCallback`. Pass it to
    `xgboost.train(callbacks=[…])` in the function of a trial.
    """


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports metrics without checkpoints; for older programs."""

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        results_postprocessing_fn: Callable[[Metrics], Metrics] | None = None,
    ) -> None:
        super().__init__(
            metrics, checkpoint_at_end=False, results_postprocessing_fn=results_postprocessing_fn
        )
