"""`TuneReportCheckpointCallback`: reports the metrics that Keras logs in a trial, and the model as
checkpoints. Imports TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syncline.train.tensorflow.keras import ReportCheckpointCallback


class TuneReportCheckpointCallback(ReportCheckpointCallback):
    """Same as `syncline.train.tensorflow.keras.ReportCheckpointCallback`. Pass it to Keras's `fit`
    in the function of a trial.
    """


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports metrics without checkpoints; for older programs.

    Args:
        metrics: Logged metrics to report: one name, several, or {reported name: logged name}; None
            for all.
        on: Hooks of Keras without `on_`.
    """

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        on: str | Sequence[str] = "epoch_end",
    ) -> None:
        super().__init__(checkpoint_on=(), report_metrics_on=on, metrics=metrics)
