"""`JsonLoggerCallback`: result.json, params.json and params.pkl in each trial's directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from syncline.runs import json_values
from syncline.tune.logger.logger import RowLogger, size_until_iteration
from syncline.tune.plain_pickle import dumps_with, is_plain
from syncline.tune.result import (
    EXPR_PARAM_FILE,
    EXPR_PARAM_PICKLE_FILE,
    EXPR_RESULT_FILE,
    TRAINING_ITERATION,
    Config,
    Metrics,
)

if TYPE_CHECKING:
    from syncline.tune.experiment.trial import Trial


class JsonLoggerCallback(RowLogger):
    """Writes each result as a line of JSON, and the configuration at each start of the trial,
    because schedulers may change it.

    NumPy scalars and arrays become JSON numbers and lists; other objects are written as text.
    Non-finite numbers are written as `NaN` and `Infinity`, which Python's parser accepts.
    """

    file_name = EXPR_RESULT_FILE

    def log_trial_start(self, trial: Trial) -> None:
        super().log_trial_start(trial)
        self.update_config(trial, trial.config)

    def update_config(self, trial: Trial, config: Config) -> None:
        """Write the configuration to params.json (as text) and params.pkl (pickled)."""
        self._files.put(trial, EXPR_PARAM_FILE, _readable(config))
        self._files.put(trial, EXPR_PARAM_PICKLE_FILE, dumps_with(config, config))

    def _row(self, trial: Trial, result: Metrics) -> bytes:
        return encode(result)

    def _bytes_to_keep(self, trial: Trial, content: bytes) -> int:
        return size_until_iteration(_rows(content), trial.restored_iteration)


def _readable(config: Config) -> bytes:
    """Return sorted and indented JSON, one parameter a line."""
    if (
        config
        and is_plain(config)
        and not any(isinstance(value, (dict, list, tuple, bytes)) for value in config.values())
    ):  # Python's own encoder with indentation takes ten times as long
        lines = (f"  {json.dumps(key)}: {json.dumps(config[key])}" for key in sorted(config))
        return ("{\n" + ",\n".join(lines) + "\n}").encode()
    return json.dumps(json.loads(encode(config)), indent=2, sort_keys=True).encode()


def encode(value: Metrics) -> bytes:
    """Encode a result as one line of JSON."""
    try:
        return json_values.encode(value)
    except TypeError:  # a key that is not a string
        return json_values.encode(json_values.plain(value))


def _rows(content: bytes) -> Iterator[tuple[int | None, int]]:
    """Yield the iteration of each line and its end position, up to the first incomplete line."""
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
