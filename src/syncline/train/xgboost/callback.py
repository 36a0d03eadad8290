"""`RayTrainReportCallback`: reports what XGBoost logs, and the model as checkpoints. Imports
XGBoost, whose callbacks have a base class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xgboost import Booster
from xgboost.callback import TrainingCallback

from syncline.train.boosting import BoostingReports
from syncline.train.checkpoint import Checkpoint
from syncline.train.xgboost.checkpoint import load_booster


class RayTrainReportCallback(TrainingCallback):
    """Reports the metrics of every boosting round; give it to `xgboost.train(callbacks=[…])` on
    every rank.

    Args:
        metrics: Which of the logged metrics, by names such as "train-rmse": one, several, or {name
            to report: logged name}; all if None.
        filename: The model's file in a checkpoint; its ending (.ubj, .json) chooses XGBoost's
            format.
        frequency: So many rounds from one checkpoint to the next; 0: none on the way.
        checkpoint_at_end: Whether the finished model is reported as a checkpoint.
        results_postprocessing_fn: Called with the chosen metrics; what it returns is reported.

    Raises:
        ValueError: For a frequency or a filename that cannot be meant.
    """

    CHECKPOINT_NAME = "model.ubj"

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        self._reports = BoostingReports(
            metrics=metrics,
            filename=filename,
            frequency=frequency,
            checkpoint_at_end=checkpoint_at_end,
            postprocess=results_postprocessing_fn,
        )
        self._logged: dict[str, Any] | None = None
        self._rounds_saved = 0

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Booster:
        """The model in a checkpoint that this callback reported; `filename` as it was given to the
        callback.
        """
        return load_booster(checkpoint, filename)

    def before_training(self, model: Any) -> Any:
        """XGBoost is about to begin."""
        self._logged, self._rounds_saved = None, 0
        return model

    def after_iteration(
        self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        """One round is over. Returns False: it is not this callback that ends training."""
        self._logged = {
            f"{data}-{metric}": values[-1]
            for data, metrics in evals_log.items()
            for metric, values in metrics.items()
        }
        due = self._reports.is_due(epoch + 1)
        if due:
            self._rounds_saved = model.num_boosted_rounds()
        self._reports.report(self._logged, model if due else None)
        return False

    def after_training(self, model: Any) -> Any:
        """The last round is over; its model is reported unless that has just been done."""
        is_one = hasattr(model, "save_model")  # cross-validation has many
        if (
            self._reports.checkpoint_at_end
            and is_one
            and model.num_boosted_rounds() != self._rounds_saved
        ):
            self._reports.report(self._logged or {}, model)
        return model
