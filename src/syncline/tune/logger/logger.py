"""`LoggerCallback`, the base of callbacks that log each trial; `RowLogger`, the base of loggers
that write one row per iteration; and `pretty_print`.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from syncline.runs import json_values
from syncline.train.metric_values import flatten
from syncline.tune.callback import Callback
from syncline.tune.logger.trial_files import TrialFiles
from syncline.tune.result import CONFIG, TRAINING_ITERATION, Metrics

if TYPE_CHECKING:
    from syncline.tune.experiment.trial import Trial


class LoggerCallback(Callback):
    """Base class of loggers, with empty hooks per trial.

    `log_trial_end` is called for every trial that ended; close its files there.
    """

    def log_trial_start(self, trial: Trial) -> None:
        """Called when a trial starts or restarts, from iteration `trial.restored_iteration`."""

    def log_trial_restore(self, trial: Trial) -> None:
        """Called when a trial was restored from its checkpoint."""

    def log_trial_save(self, trial: Trial) -> None:
        """Called after a checkpoint of the trial, `trial.checkpoint`, was registered."""

    def log_trial_result(self, iteration: int, trial: Trial, result: Metrics) -> None:
        """Called when a trial reported `result`, which must not be modified.

        `iteration` is the step of the controller.
        """

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Called when a trial ended."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: Metrics, **info: object
    ) -> None:
        self.log_trial_result(iteration, trial, result)

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        self.log_trial_start(trial)

    def on_trial_restore(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        self.log_trial_restore(trial)

    def on_trial_save(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        self.log_trial_save(trial)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        self.log_trial_end(trial, failed=False)

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        self.log_trial_end(trial, failed=True)


class RowLogger(LoggerCallback):
    """Appends one row per result to a file in the trial's directory.

    When a trial resumes from an earlier iteration, the rows after that iteration are removed,
    because the trial reports them again. An incomplete last row is removed as well.
    """

    file_name: ClassVar[str]

    def __init__(self) -> None:
        self._files = TrialFiles(f"Uploading {self.file_name}")
        self._latest: dict[str, int] = {}
        """The iteration of the last row of each running trial."""

    @abstractmethod
    def _row(self, trial: Trial, result: Metrics) -> bytes:
        """Encode a result as a row with its newline."""

    @abstractmethod
    def _bytes_to_keep(self, trial: Trial, content: bytes) -> int:
        """Return how many bytes of an existing file precede the trial's first new row."""

    def log_trial_start(self, trial: Trial) -> None:
        # The file of a paused trial has no excess rows and need not be read.
        if (
            not self._files.is_open(trial)
            or self._latest.get(trial.trial_id, 0) > trial.restored_iteration
        ):
            self._files.begin(
                trial, self.file_name, lambda content: self._bytes_to_keep(trial, content)
            )
            self._latest[trial.trial_id] = trial.restored_iteration

    def log_trial_result(self, iteration: int, trial: Trial, result: Metrics) -> None:
        if not self._files.is_open(trial):
            self.log_trial_start(trial)
        self._files.append(trial, self._row(trial, result))
        self._latest[trial.trial_id] = result.get(TRAINING_ITERATION) or 0

    def log_trial_save(self, trial: Trial) -> None:
        self._files.upload(trial)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self._latest.pop(trial.trial_id, None)
        self._files.end(trial)

    def on_experiment_end(self, trials: list[Trial], **info: object) -> None:
        self._latest.clear()
        self._files.close()


def flat_result(result: Metrics, without: frozenset[str]) -> Metrics:
    """Return a result with keys like `a/b` for nested values, except the keys in `without`."""
    kept = {key: value for key, value in result.items() if key not in without}
    # Few results are nested, and the check is ten times faster than flattening.
    return flatten(kept) if any(isinstance(value, dict) for value in kept.values()) else kept


def size_until_iteration(rows: Iterable[tuple[int | None, int]], iteration: int) -> int:
    """Return the size in bytes of the rows before the first row after `iteration`.

    Args:
        rows: Iteration of each complete row (None if it has none) and the row's end position.
        iteration: Last iteration to keep.
    """
    size = 0
    for number, end in rows:
        if number is not None and number > iteration:
            break
        size = end
    return size


def pretty_print(result: Metrics, exclude: Collection[str] | None = None) -> str:
    """Format a result as text, one line per value, sorted by key, with nested values indented.

    The configuration and values that are None are omitted.
    """
    left_out = {CONFIG, "hist_stats", *(exclude or ())}
    shown = {
        key: value for key, value in result.items() if key not in left_out and value is not None
    }
    return "".join(f"{line}\n" for line in _lines(json.loads(json_values.encode(shown)), ""))


def _lines(shown: Mapping[str, object], indent: str) -> Iterator[str]:
    for key in sorted(shown):
        value = shown[key]
        if isinstance(value, dict) and value:
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {value if isinstance(value, str) else json.dumps(value)}"
