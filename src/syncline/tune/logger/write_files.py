"""`write_files`: the files of the default loggers for a trial whose results are known."""

from __future__ import annotations

from collections.abc import Iterable

from syncline.tune.experiment.trial import Trial
from syncline.tune.logger.csv import CSVLoggerCallback
from syncline.tune.logger.json import JsonLoggerCallback
from syncline.tune.logger.logger import LoggerCallback
from syncline.tune.logger.tensorboardx import TBXLoggerCallback, event_file_name
from syncline.tune.result import TIMESTAMP, TRAINING_ITERATION, Metrics


def write_files(trial: Trial, results: Iterable[Metrics]) -> None:
    """Write result.json, progress.csv, params.json, params.pkl and the events for TensorBoard of a
    trial. Existing ones are replaced.

    Args:
        trial: The trial, which does not run.
        results: All of its results, in order.
    """
    rows = list(results)
    now = float(rows[0].get(TIMESTAMP, 0) if rows else 0)

    def clock() -> float:
        return now

    loggers: tuple[LoggerCallback, ...] = (
        CSVLoggerCallback(),
        JsonLoggerCallback(),
        TBXLoggerCallback(clock=clock),
    )
    trial.storage.files.delete(event_file_name(now))  # its logger would append to it
    for logger in loggers:
        logger.log_trial_start(trial)
    for row in rows:
        now = float(row.get(TIMESTAMP, now))
        for logger in loggers:
            logger.log_trial_result(int(row.get(TRAINING_ITERATION) or 0), trial, row)
    for logger in loggers:
        logger.log_trial_end(trial)
        logger.on_experiment_end(trials=[trial])
