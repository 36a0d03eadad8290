"""`TuneReportCallback`: what the workers of a trainer report is what the trial reports that the
trainer runs in.
"""

from __future__ import annotations

from typing import Any

from syncline.train.callbacks import UserCallback
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import RunConfig
from syncline.train.session import current_session
from syncline.train.storage import StorageContext
from syncline.tune.trainable.earlier_reports import earlier_reports
from syncline.tune.trainable.session import TrialSession

CHECKPOINT_PATH_KEY = "checkpoint_path"
"""The metric that says where the run keeps the checkpoint."""


class TuneReportCallback(UserCallback):
    """Reports rank 0's metrics to the search, and the run's checkpoint, whose files stay where they
    are.

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
        self._has_told_earlier = False

    def tell_earlier(self, run_context: RunConfig, *, started: bool = False) -> None:
        """Report what the run had reported before a kill, and the search does not know. `started`:
        the run has been started again.
        """
        self._has_told_earlier = True
        run, own = StorageContext.from_run_config(run_context), self._trial.facts.storage
        if own is None or not f"{run.storage_fs_path}/".startswith(f"{own.experiment_fs_path}/"):
            return  # a run that is not of this trial alone
        for metrics, checkpoint in list(earlier_reports(run, self._trial.latest, started=started)):
            self._tell(metrics, checkpoint)

    def after_report(
        self, run_context: RunConfig, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Report what rank 0 did. Returns when the search wants the next result; the workers go on
        meanwhile.
        """
        if not self._has_told_earlier:
            self.tell_earlier(run_context, started=True)
        self._tell(metrics[0], checkpoint)

    def _tell(self, metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None:
        where = {CHECKPOINT_PATH_KEY: checkpoint.path} if checkpoint is not None else {}
        self._trial.hand_over({**metrics, **where}, checkpoint, in_place=True)
