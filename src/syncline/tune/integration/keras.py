"""`TuneReportCheckpointCallback`: reports what Keras logs in a trial, and the model as checkpoints.
Imports TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syncline.train.tensorflow.keras import ReportCheckpointCallback


class TuneReportCheckpointCallback(ReportCheckpointCallback):
    """As `syncline.train.tensorflow.keras.ReportCheckpointCallback`; give it to Keras's `fit` in a
    trial's function.
    """


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports metrics and no checkpoints; for older programs.

    Args:
        metrics: Which of the logged metrics: one name, several, or {name to report: logged name};
        all if None. on: At which events: Keras's hooks without their `on_`.
    """

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        on: str | Sequence[str] = "epoch_end",
    ) -> None:
        super().__init__(checkpoint_on=(), report_metrics_on=on, metrics=metrics)
