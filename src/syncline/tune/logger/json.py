"""`JsonLoggerCallback`: result.json, params.json and params.pkl in each trial's directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import cloudpickle

from syncline.runs import json_values
from syncline.tune.logger.rows import RowLogger, size_up_to
from syncline.tune.result import (
    EXPR_PARAM_FILE,
    EXPR_PARAM_PICKLE_FILE,
    EXPR_RESULT_FILE,
    TRAINING_ITERATION,
)

if TYPE_CHECKING:
    from syncline.tune.experiment.trial import Trial


class JsonLoggerCallback(RowLogger):
    """Writes every result as a line of JSON, and the configuration whenever the trial starts
    (schedulers may change it).

    NumPy's numbers and arrays become JSON's; of other objects, their description is written.
    Not-a-number and infinities are written as `NaN` and `Infinity`, which Python reads.
    """

    file_name = EXPR_RESULT_FILE

    def log_trial_start(self, trial: Trial) -> None:
        super().log_trial_start(trial)
        self.update_config(trial, trial.config)

    def update_config(self, trial: Trial, config: dict[str, Any]) -> None:
        """Write the configuration anew, for people (params.json) and for programs (params.pkl)."""
        readable = json.dumps(json.loads(_encode(config)), indent=2, sort_keys=True)
        self._files.put(trial, EXPR_PARAM_FILE, readable.encode())
        self._files.put(trial, EXPR_PARAM_PICKLE_FILE, cloudpickle.dumps(config))

    def _row(self, trial: Trial, result: dict[str, Any]) -> bytes:
        return _encode(result)

    def _keep(self, trial: Trial, content: bytes) -> int:
        return size_up_to(_rows(content), trial.restored_iteration)


def _encode(value: dict[str, Any]) -> bytes:
    try:
        return json_values.encode(value)
    except TypeError:  # keys that JSON does not have
        return json_values.encode(json_values.plain(value))


def _rows(content: bytes) -> Iterator[tuple[int | None, int]]:
    """Iteration of each line and the position after it, until one that is torn."""
    end = 0
    for line in content.splitlines(keepends=True):
        try:
            row = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            return
        if not isinstance(row, dict):
            return
        end += len(line)
        yield row.get(TRAINING_ITERATION), end
