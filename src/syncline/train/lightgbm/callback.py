"""`RayTrainReportCallback`: reports LightGBM's metrics, and the model as checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncline.train.boosting import BoostingReportCallback
from syncline.train.checkpoint import Checkpoint
from syncline.train.lightgbm.checkpoint import load_booster

if TYPE_CHECKING:
    from lightgbm import Booster
    from lightgbm.callback import CallbackEnv


class RayTrainReportCallback(BoostingReportCallback):
    """Reports the metrics of every boosting round. Pass it to `lightgbm.train(callbacks=[…])` on
    every rank.

    LightGBM has no hook for the end of training, so the final checkpoint is reported with the last
    configured round. If another callback stops the training early, there is none.

    Args:
        metrics: Logged metrics to report, by names such as "valid_0-auc": one, several, or
            {reported name: logged name}; all if None.
        filename: File of the model in a checkpoint, by default `CHECKPOINT_NAME`.
        frequency: Rounds between two checkpoints; 0 for none before the end.
        checkpoint_at_end: Report the model of the last round as a checkpoint.
        results_postprocessing_fn: Applied to the selected metrics before they are reported.

    Raises:
        ValueError: Invalid `frequency` or `filename`.
    """

    CHECKPOINT_NAME = "model.txt"

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Booster:
        """Return the model of a checkpoint that this callback reported in `filename`."""
        return load_booster(checkpoint, filename)

    def __call__(self, env: CallbackEnv) -> None:
        """Report one round."""
        at_end = self._checkpoint_at_end and env.iteration == env.end_iteration - 1
        model: Any = env.model if at_end or self._is_due(env.iteration + 1) else None
        self._report(_logged(env.evaluation_result_list or ()), model)


def _logged(results: Sequence[Any]) -> dict[str, object]:
    """Return values by "dataset-metric", from tuples (dataset, metric, value, …). Entries of a
    cross-validation have a mean and a standard deviation.
    """
    logged: dict[str, object] = {}
    for data, metric, value, *rest in results:
        name = f"{data}-{metric}"
        logged |= (
            {f"{name}-mean": value, f"{name}-stdv": rest[1]} if len(rest) > 1 else {name: value}
        )
    return logged
