"""`ReportCheckpointCallback`: reports Keras's metrics, and the model as checkpoints. Imports
TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tensorflow.keras.callbacks import Callback

from syncline.train import metric_values
from syncline.train.metric_values import Metrics
from syncline.train.session import get_session, report
from syncline.train.tensorflow.checkpoint import TensorflowCheckpoint

EVENTS = (
    *("epoch_begin", "epoch_end"),
    *(
        f"{part}_{when}"
        for part in ("train_batch", "test_batch", "predict_batch", "train", "test", "predict")
        for when in ("begin", "end")
    ),
)
"""Names of Keras's hooks, without the prefix `on_`."""


class ReportCheckpointCallback(Callback):
    """Reports metrics and checkpoints at events of Keras's `fit`, `evaluate` and `predict`. Pass it
    to them on every rank.

    Every rank saves the model, since the strategy may need all of them. Rank 0's model is reported.
    Load it with `TensorflowCheckpoint.of(checkpoint).get_model()`.

    Args:
        checkpoint_on: Events at which a checkpoint is reported with the metrics: Keras's hooks
            without the prefix `on_`, such as "epoch_end".
        report_metrics_on: Events at which metrics are reported.
        metrics: Logged metrics to report: one name, several, or {reported name: logged name}; all
            if None.

    Raises:
        ValueError: Unknown event.
    """

    def __init__(
        self,
        checkpoint_on: str | Sequence[str] = "epoch_end",
        report_metrics_on: str | Sequence[str] = "epoch_end",
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._checkpoint_on = _events("checkpoint_on", checkpoint_on)
        self._metrics = metrics
        # Add no other hooks: for an existing batch hook, Keras waits for the values of every batch.
        for event in self._checkpoint_on | _events("report_metrics_on", report_metrics_on):
            setattr(self, f"on_{event}", partial(self._handle, event))

    def _handle(self, event: str, *arguments: object, logs: Metrics | None = None) -> None:
        """Handle an event. Keras passes the number of the epoch or batch, if any, and the logs."""
        logged = (
            logs
            if logs is not None
            else next((value for value in arguments if isinstance(value, Mapping)), {})
        )
        chosen = metric_values.select(logged, self._metrics)
        checkpoint = (
            TensorflowCheckpoint.from_model(self.model) if event in self._checkpoint_on else None
        )
        report(chosen, checkpoint=checkpoint if get_session("report").world_rank == 0 else None)


def _events(argument: str, given: str | Sequence[str]) -> frozenset[str]:
    events = frozenset((given,) if isinstance(given, str) else given)
    unknown = sorted(events.difference(EVENTS))
    if unknown:
        raise ValueError(
            f"{argument}={given!r}: {', '.join(unknown)} is not an event of Keras. Events are "
            f"{', '.join(EVENTS)}."
        )
    return events
