"""`TuneReportCallback`: forwards the reports of a trainer's workers to the trial that the trainer
runs in.
"""

from __future__ import annotations

from collections.abc import Iterator

from syncline.runs.run_record import RunRecord
from syncline.train.checkpoint import Checkpoint
from syncline.train.run_config import RunConfig, UserCallback
from syncline.train.session import current_session
from syncline.train.storage.context import StorageContext
from syncline.tune.result import Metrics
from syncline.tune.trainable.session import TrialSession

CHECKPOINT_PATH_KEY = "checkpoint_path"
"""Metric with the path of the run's checkpoint."""


class TuneReportCallback(UserCallback):
    """Reports rank 0's metrics and the run's checkpoints to the search. The checkpoint files stay
    in the run directory.

    def train_driver(config):
        trainer = TorchTrainer(fn, run_config=RunConfig(callbacks=[TuneReportCallback()], ...), ...)
        trainer.fit()

    Raises:
        RuntimeError: It is created outside a trial.
    """

    def __init__(self) -> None:
        session = current_session()
        if not isinstance(session, TrialSession):
            raise RuntimeError(
                "TuneReportCallback() was created outside a trial, so there is no search to report "
                "to: create it in the function that is passed to `Tuner`."
            )
        self._trial = session  # the process may have another session while the trainer runs
        self._reported_missed = False

    def report_missed(self, run_context: RunConfig, *, started: bool = False) -> None:
        """Repeat reports that the run made before a kill and that the search has not received.

        Args:
            run_context: Configuration of the run.
            started: True if the run has been restarted.
        """
        self._reported_missed = True
        run, own = StorageContext.from_run_config(run_context), self._trial.info.storage
        if own is None or not f"{run.storage_fs_path}/".startswith(f"{own.experiment_fs_path}/"):
            return  # other trials may share the run
        for metrics, checkpoint in list(missed_reports(run, self._trial.latest, started=started)):
            self._report(metrics, checkpoint)

    def after_report(
        self, run_context: RunConfig, metrics: list[Metrics], checkpoint: Checkpoint | None
    ) -> None:
        """Report rank 0's metrics, and wait until the search wants the next result. The workers
        continue meanwhile.
        """
        if not self._reported_missed:
            self.report_missed(run_context, started=True)
        self._report(metrics[0], checkpoint)

    def _report(self, metrics: Metrics, checkpoint: Checkpoint | None) -> None:
        path = {CHECKPOINT_PATH_KEY: checkpoint.path} if checkpoint is not None else {}
        self._trial.send({**metrics, **path}, checkpoint, in_place=True)


def missed_reports(
    run: StorageContext, known: Checkpoint | None, *, started: bool
) -> Iterator[tuple[Metrics, Checkpoint | None]]:
    """Yield metrics and checkpoint of the run's reports after checkpoint `known`, up to the
    checkpoint from which the run continues.

    A kill may come after the run wrote its record and before the search wrote its journal. The run
    then continues from a later checkpoint than the trial's.

    Args:
        run: Run directory of the trainer.
        known: Latest checkpoint of the trial; None without one.
        started: True if the run has been restarted; reports since then are left out.
    """
    record = RunRecord(run.files)
    if not record.exists():
        return
    events = record.events()
    index_of = {
        event["name"]: int(event["report"]) for event in events if event["event"] == "checkpoint"
    }
    kept = {
        entry["index"]: entry["name"]
        for entry in (record.checkpoints() or {}).get("checkpoints", ())
    }
    starts = [int(event["next_report"]) for event in events if event["event"] == "started"]
    end = starts[-1] if started and starts else float("inf")
    first = (
        index_of.get(run.name_of(known), -1) + 1 if known is not None and run.contains(known) else 0
    )
    for report in sorted(record.reports(rank=0), key=lambda report: int(report["iteration"])):
        index = int(report["iteration"])
        # Reports between the last checkpoint and the next start were computed again.
        next_start = min((start for start in starts if start > index), default=float("inf"))
        if first <= index < end and any(
            index <= checkpoint < next_start for checkpoint in index_of.values()
        ):
            yield report["metrics"], run.checkpoint(kept[index]) if index in kept else None
