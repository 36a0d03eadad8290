"""`RayTrainReportCallback`: reports XGBoost's metrics, and the model as checkpoints. Imports
XGBoost, for the base class of its callbacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from xgboost import Booster
from xgboost.callback import TrainingCallback

from syncline.train.boosting import BoostingReportCallback
from syncline.train.checkpoint import Checkpoint
from syncline.train.xgboost.checkpoint import load_booster

ModelT = TypeVar("ModelT")


class RayTrainReportCallback(BoostingReportCallback, TrainingCallback):
    """Reports the metrics of every boosting round. Pass it to `xgboost.train(callbacks=[…])` on
    every rank.

    Args:
        metrics: Logged metrics to report, by names such as "train-rmse": one, several, or
            {reported name: logged name}; all if None.
        filename: File of the model in a checkpoint, by default `CHECKPOINT_NAME`. Its suffix (.ubj,
            .json) selects the format.
        frequency: Rounds between two checkpoints; 0 for none before the end.
        checkpoint_at_end: Report the final model as a checkpoint.
        results_postprocessing_fn: Applied to the selected metrics before they are reported.

    Raises:
        ValueError: Invalid `frequency` or `filename`.
    """

    CHECKPOINT_NAME = "model.ubj"

    _logged: dict[str, object] | None = None
    _rounds_saved = 0

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Booster:
        """Return the model of a checkpoint that this callback reported in `filename`."""
        return load_booster(checkpoint, filename)

    def before_training(self, model: ModelT) -> ModelT:
        """Reset the state before training."""
        self._logged, self._rounds_saved = None, 0
        return model

    def after_iteration(
        self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        """Report one round. Return False, since this callback does not stop the training."""
        self._logged = {
            f"{data}-{metric}": values[-1]
            for data, metrics in evals_log.items()
            for metric, values in metrics.items()
        }
        due = self._is_due(epoch + 1)
        if due:
            self._rounds_saved = model.num_boosted_rounds()
        self._report(self._logged, model if due else None)
        return False

    def after_training(self, model: Any) -> Any:
        """Report the final model, unless the last round has reported it."""
        is_single = hasattr(model, "save_model")  # cross-validation has several models
        if (
            self._checkpoint_at_end
            and is_single
            and model.num_boosted_rounds() != self._rounds_saved
        ):
            self._report(self._logged or {}, model)
        return model
