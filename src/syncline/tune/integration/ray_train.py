"""`TuneReportCallback`: what the workers of a trainer report is what the trial reports that the trainer runs in."""

from __future__ import annotations

from typing import Any

from syncline.train.callbacks import UserCallback
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import RunConfig
from syncline.train.session import current_session
from syncline.tune.trainable.session import TrialSession

CHECKPOINT_PATH_KEY = "checkpoint_path"
"""The metric that says where the run keeps the checkpoint."""


class TuneReportCallback(UserCallback):
    """Reports rank 0's metrics to the search, and the run's checkpoint, whose files stay where they are.

    def train_driver(config):
        trainer = TorchTrainer(fn, run_config=RunConfig(callbacks=[TuneReportCallback()], ...), ...)
        trainer.fit()

    Raises:
        RuntimeError: it is made outside a trial.
    """

    def __init__(self) -> None:
        session = current_session()
        if not isinstance(session, TrialSession):
            raise RuntimeError(
                "TuneReportCallback() was made outside a trial, so there is no search to report to: make it in the function that is given "
                "to `Tuner`, beside the trainer."
            )
        self._trial = session  # while the trainer runs, the process may have another session

    def after_report(self, run_context: RunConfig, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None) -> None:
        """Report what rank 0 did. Returns when the search wants the next result; the workers go on meanwhile."""
        where = {CHECKPOINT_PATH_KEY: checkpoint.path} if checkpoint is not None else {}
        self._trial.hand_over({**metrics[0], **where}, checkpoint, in_place=True)
