"""`TuneReportCheckpointCallback`: reports what XGBoost logs in a trial, and the model as
checkpoints. Imports XGBoost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from syncline.train.xgboost import RayTrainReportCallback


class TuneReportCheckpointCallback(RayTrainReportCallback):
    """As `syncline.train.xgboost.RayTrainReportCallback`; give it to `xgboost.train(callbacks=[…])`
    in a trial's function.
    """


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports metrics and no checkpoints; for older programs."""

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(
            metrics, checkpoint_at_end=False, results_postprocessing_fn=results_postprocessing_fn
        )
