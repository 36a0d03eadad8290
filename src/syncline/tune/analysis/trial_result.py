"""`Result`: the outcome of one trial, from the search or read from the trial's directory. Also:
results as pandas tables, with nested values in columns `a/b` and the configuration in columns
`config/…`.
"""

from __future__ import annotations

import json
import os
import pprint
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from pyarrow import fs as pyarrow_fs

from syncline.optional import load
from syncline.storage import filesystem as directories
from syncline.train import metric_values
from syncline.train import result as train_result
from syncline.train.checkpoint import Checkpoint
from syncline.tune.error import TuneError
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import (
    AUTO_RESULT_KEYS,
    CHECKPOINT_DIR_NAME,
    CONFIG,
    EXPR_ERROR_FILE,
    EXPR_PARAM_FILE,
    TRIAL_ID,
    Config,
    Metrics,
)
from syncline.tune.trial_history import read_history

if TYPE_CHECKING:
    import pandas

_CHECKPOINT_PREFIX = "checkpoint_"


@dataclass(frozen=True, repr=False, kw_only=True)
class Result(train_result.Result):
    """Outcome of one trial. `metrics` is its last result, with the automatic keys."""

    config: Config | None = None
    """The trainable's configuration; None if the directory does not contain it."""

    @cached_property
    def metrics_dataframe(self) -> pandas.DataFrame:
        """All results, one per row, read from the files of the search on first access; empty if
        there are none.
        """
        return table(read_history(self.filesystem, self.path) or [])

    def get_best_checkpoint(self, metric: str, mode: Literal["max", "min"]) -> Checkpoint | None:
        """Return the available checkpoint with the best `metric`; see
        `syncline.train.Result.get_best_checkpoint`.

        Raises:
            RuntimeError: No checkpoint is available, or none has a number with that name.
        """
        if not self.best_checkpoints:
            raise RuntimeError(
                f"The trial in {self.path!r} has no checkpoint: report one or set CheckpointConfig."
            )
        return super().get_best_checkpoint(metric, mode)

    @classmethod
    def from_trial(cls, trial: Trial) -> Result:
        """Return the result of a trial in this program, which may still be running."""
        return cls(
            metrics=dict(trial.last_result),
            checkpoint=trial.checkpoint,
            error=trial_error(trial),
            path=trial.path,
            best_checkpoints=trial.checkpoints.best_checkpoints,
            storage_filesystem=trial.storage.storage_filesystem,
            config=trial.config,
        )

    @classmethod
    def from_path(
        cls, path: str | os.PathLike[str], storage_filesystem: pyarrow_fs.FileSystem | None = None
    ) -> Result:
        """Read the result of a trial from its directory.

        Args:
            path: The trial's directory or its URI.
            storage_filesystem: Filesystem of `path`; derived from it by default.

        Raises:
            RuntimeError: The directory does not exist or contains no result.
            ValueError: pyarrow does not support the URI.
        """
        filesystem, directory = directories.resolve(path, storage_filesystem)
        rows = read_history(filesystem, directory)
        if rows is None and not directories.is_directory(filesystem, directory):
            raise RuntimeError(
                f"The {filesystem.type_name} filesystem has no directory {directory!r}: give the "
                "directory of a trial, such as `result.path`."
            )
        if rows is None:
            raise RuntimeError(
                f"{directory!r} contains neither result.json nor progress.csv, so no trial "
                "reported there: give the directory of a trial. For a whole search, use "
                "`ExperimentAnalysis` or `Tuner.restore`."
            )
        metrics = rows[-1] if rows else {}
        kept = _checkpoints(filesystem, directory, rows)
        failure = directories.read_bytes(filesystem, directories.join(directory, EXPR_ERROR_FILE))
        parameters = directories.read_bytes(
            filesystem, directories.join(directory, EXPR_PARAM_FILE)
        )
        return cls(
            metrics=metrics,
            checkpoint=kept[-1][0] if kept else None,
            error=TuneError(failure.decode("utf-8", "replace").strip()) if failure else None,
            path=directory,
            best_checkpoints=kept,
            storage_filesystem=filesystem,
            config=json.loads(parameters) if parameters else metrics.get(CONFIG),
        )

    def __repr__(self) -> str:
        shown = {
            "error": type(self.error).__name__ if self.error is not None else None,
            "metrics": {
                key: value
                for key, value in (self.metrics or {}).items()
                if key not in AUTO_RESULT_KEYS
            },
            "config": self.config,
            "path": self.path,
            "filesystem": self.filesystem.type_name,
            "checkpoint": self.checkpoint,
        }
        if self.error is None:
            del shown["error"]
        lines = [
            f"  {name}={pprint.pformat(value, indent=1, width=110, compact=True, sort_dicts=False)}"
            for name, value in shown.items()
        ]
        return "Result(\n" + ",\n".join(line.replace("\n", "\n    ") for line in lines) + "\n)"


def trial_error(trial: Trial) -> Exception | None:
    """Return the error of a trial; None unless its status is ERROR."""
    if trial.status != Trial.ERROR:
        return None
    if isinstance(trial.exception, Exception):
        return trial.exception
    return TuneError(trial.error_text.strip() or f"{trial} failed: {trial.exception!r}")


def _checkpoints(
    filesystem: pyarrow_fs.FileSystem, directory: str, rows: list[Metrics]
) -> list[tuple[Checkpoint, Metrics]]:
    """Return the checkpoints in a trial's directory in order, each with its result or {}."""
    entries = filesystem.get_file_info(pyarrow_fs.FileSelector(directory, allow_not_found=True))
    names = sorted(
        entry.base_name for entry in entries if entry.base_name.startswith(_CHECKPOINT_PREFIX)
    )
    reported: Mapping[object, Metrics] = {row.get(CHECKPOINT_DIR_NAME): row for row in rows}
    return [
        (Checkpoint(directories.join(directory, name), filesystem), reported.get(name, {}))
        for name in names
    ]


# -- pandas tables


def table(rows: Iterable[Mapping[str, object]], *, index: str | None = None) -> pandas.DataFrame:
    """Return one row per dictionary, flattened; `index` names the index column."""
    # pandas takes a third of a second to import.
    pandas_module = load("pandas", purpose="a table of results", install="syncline[tune]")
    made: pandas.DataFrame = pandas_module.DataFrame([metric_values.flatten(row) for row in rows])
    if index is not None and index in made.columns:
        made = made.set_index(index)
    return made


def with_config(result: Mapping[str, object], trial: Trial) -> Metrics:
    """Return a result with the trial's id and, at the end, its current configuration."""
    return {
        **{key: value for key, value in result.items() if key != CONFIG},
        TRIAL_ID: trial.trial_id,
        CONFIG: trial.config,
    }


def best_row(rows: Sequence[Metrics], metric: str, mode: str) -> Metrics | None:
    """Return the first result with the best `metric`; None if no result has a number there."""
    best, high = None, 0.0
    for row in rows:
        value = metric_values.score(row, metric, "max" if mode == "max" else "min")
        if value is not None and (best is None or value > high):
            best, high = row, value
    return best


class TrialTables(Mapping[str, "pandas.DataFrame"]):
    """Tables by trial id, read on first access.

    Args:
        trial_ids: The keys.
        read: Reads the table of a trial.
    """

    def __init__(self, trial_ids: Iterable[str], read: Callable[[str], pandas.DataFrame]) -> None:
        self._tables: dict[str, pandas.DataFrame | None] = dict.fromkeys(trial_ids)
        self._read = read

    def __getitem__(self, trial_id: str) -> pandas.DataFrame:
        frame = self._tables[trial_id]
        if frame is None:
            frame = self._tables[trial_id] = self._read(trial_id)
        return frame

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)
