"""`RayTrainReportCallback`: reports what LightGBM logs, and the model as checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syncline.train.boosting import BoostingReports
from syncline.train.checkpoint import Checkpoint
from syncline.train.lightgbm.checkpoint import load_booster

if TYPE_CHECKING:
    from lightgbm import Booster
    from lightgbm.callback import CallbackEnv


class RayTrainReportCallback:
    """Reports the metrics of every boosting round; give it to `lightgbm.train(callbacks=[…])` on
    every rank.

    LightGBM has no hook for the end of training, so the checkpoint at the end comes with the last
    round that was asked for; where another callback stops early, there is none.

    Args:
        metrics: Which of the logged metrics, by names such as "valid_0-auc": one, several, or {name
            to report: logged name}; all if None.
        filename: The model's file in a checkpoint.
        frequency: So many rounds from one checkpoint to the next; 0: none on the way.
        checkpoint_at_end: Whether the model of the last round is reported as a checkpoint.
        results_postprocessing_fn: Called with the chosen metrics; what it returns is reported.

    Raises:
        ValueError: For a frequency or a filename that cannot be meant.
    """

    CHECKPOINT_NAME = "model.txt"

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._reports = BoostingReports(
            metrics=metrics,
            filename=filename,
            frequency=frequency,
            checkpoint_at_end=checkpoint_at_end,
            postprocess=results_postprocessing_fn,
        )

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Booster:
        """The model in a checkpoint that this callback reported; `filename` as it was given to the
        callback.
        """
        return load_booster(checkpoint, filename)

    def __call__(self, env: CallbackEnv) -> None:
        """One round is over."""
        at_end = self._reports.checkpoint_at_end and env.iteration == env.end_iteration - 1
        model: Any = env.model if at_end or self._reports.is_due(env.iteration + 1) else None
        self._reports.report(_logged(env.evaluation_result_list or ()), model)


def _logged(results: Sequence[Any]) -> dict[str, Any]:
    """Entries (dataset, metric, value, …) by "dataset-metric"; those of a cross-validation have a
    mean and a standard deviation.
    """
    logged: dict[str, Any] = {}
    for data, metric, value, *rest in results:
        name = f"{data}-{metric}"
        logged |= (
            {f"{name}-mean": value, f"{name}-stdv": rest[1]} if len(rest) > 1 else {name: value}
        )
    return logged
