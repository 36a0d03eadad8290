"""What the loggers of result.json and progress.csv share: a row for each result, and each iteration
once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from syncline.train.metric_values import flatten
from syncline.tune.logger.logger import LoggerCallback
from syncline.tune.logger.trial_files import TrialFiles
from syncline.tune.result import TRAINING_ITERATION

if TYPE_CHECKING:
    from syncline.tune.experiment.trial import Trial


class RowLogger(LoggerCallback):
    """Adds a row per result to a file in the trial's directory.

    A trial that goes on from an earlier iteration loses the rows after it, because it reports them
    again; so does one that was killed while a row was being written.
    """

    file_name: ClassVar[str]

    def __init__(self) -> None:
        self._files = TrialFiles(f"Uploading {self.file_name}")
        self._latest: dict[str, int] = {}
        """The iteration of the last row of each running trial."""

    @abstractmethod
    def _row(self, trial: Trial, result: dict[str, Any]) -> bytes:
        """The row of a result, with its newline."""

    @abstractmethod
    def _keep(self, trial: Trial, content: bytes) -> int:
        """How much of an earlier file stays when the trial begins at `trial.restored_iteration`."""

    def log_trial_start(self, trial: Trial) -> None:
        # A trial that has only been paused has no row too many, and need not be read.
        if (
            not self._files.knows(trial)
            or self._latest.get(trial.trial_id, 0) > trial.restored_iteration
        ):
            self._files.begin(trial, self.file_name, lambda content: self._keep(trial, content))
            self._latest[trial.trial_id] = trial.restored_iteration

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if not self._files.knows(trial):
            self.log_trial_start(trial)
        self._files.append(trial, self._row(trial, result))
        self._latest[trial.trial_id] = result.get(TRAINING_ITERATION) or 0

    def log_trial_save(self, trial: Trial) -> None:
        self._files.upload(trial)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self._latest.pop(trial.trial_id, None)
        self._files.end(trial)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        self._latest.clear()
        self._files.close()


def flat_result(result: Mapping[str, Any], without: frozenset[str]) -> dict[str, Any]:
    """A result with keys like `a/b` for nested values, and without some of its keys."""
    kept = {key: value for key, value in result.items() if key not in without}
    # Few results are nested, and the check is ten times quicker than the flattening.
    return flatten(kept) if any(isinstance(value, dict) for value in kept.values()) else kept


def size_up_to(rows: Iterable[tuple[int | None, int]], iteration: int) -> int:
    """Where the rows after `iteration` begin: the first byte of them.

    Args:
        rows: Iteration of each whole row (None if it has none) and the position after it, in order.
        iteration: The last that stays.
    """
    size = 0
    for number, end in rows:
        if number is not None and number > iteration:
            break
        size = end
    return size
