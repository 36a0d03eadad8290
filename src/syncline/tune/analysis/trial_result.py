"""`Result`: what came of one trial, from the search or read from the trial's directory later."""

from __future__ import annotations

import json
import os
import pprint
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pyarrow import fs as pyarrow_fs

from syncline.storage import filesystem as directories
from syncline.train import result as train_result
from syncline.train.checkpoint import Checkpoint
from syncline.tune.analysis import tables
from syncline.tune.error import TuneError
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import (
    AUTO_RESULT_KEYS,
    CHECKPOINT_DIR_NAME,
    CONFIG,
    EXPR_ERROR_FILE,
    EXPR_PARAM_FILE,
)
from syncline.tune.trial_history import read_history

if TYPE_CHECKING:
    import pandas

_CHECKPOINT_PREFIX = "checkpoint_"


@dataclass(frozen=True, repr=False, kw_only=True)
class Result(train_result.Result):
    """What one trial ended with. `metrics` are its latest result, with the keys that are filled in
    for every trial.
    """

    config: dict[str, Any] | None = None
    """What the trainable was called with; None where nobody wrote it down."""

    @cached_property
    def metrics_dataframe(self) -> pandas.DataFrame:
        """Every result as a pandas table, a row each, nested values as `a/b`: read from the trial's
        directory when first asked for. Empty if the trial has written none.
        """
        return tables.table(read_history(self.filesystem, self.path) or [])

    def get_best_checkpoint(self, metric: str, mode: Literal["max", "min"]) -> Checkpoint | None:
        """The kept checkpoint with the highest or lowest `metric`; see
        `syncline.train.Result.get_best_checkpoint`.

        Raises:
            RuntimeError: The trial has kept no checkpoint, or none with a number under that name.
        """
        if not self.best_checkpoints:
            raise RuntimeError(
                f"The trial in {self.path!r} has kept no checkpoint, so none is the best: report one, or set CheckpointConfig."
            )
        return super().get_best_checkpoint(metric, mode)

    @classmethod
    def from_trial(cls, trial: Trial) -> Result:
        """The result of a trial of this program, also of one that has not ended."""
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
            path: The trial's directory, or its URI.
            storage_filesystem: The filesystem that `path` is a path on; found from it if not given.

        Raises:
            RuntimeError: There is no such directory, or no result in it.
            ValueError: A URI that pyarrow does not know.
        """
        filesystem, directory = directories.resolve(path, storage_filesystem)
        if not directories.is_directory(filesystem, directory):
            raise RuntimeError(
                f"There is no directory {directory!r} on the {filesystem.type_name} filesystem, so there is no result to read: "
                "give the directory of a trial, which is `result.path`."
            )
        rows = read_history(filesystem, directory)
        if rows is None:
            raise RuntimeError(
                f"{directory!r} holds neither result.json nor progress.csv, so no trial has reported there: give the directory of "
                "a trial, or that of a whole search to `ExperimentAnalysis` or `Tuner.restore`."
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
    """What a trial ended with, None for one that has not failed in the end."""
    if trial.status != Trial.ERROR:
        return None
    if isinstance(trial.exception, Exception):
        return trial.exception
    return TuneError(trial.error_text.strip() or f"{trial} failed: {trial.exception!r}")


def _checkpoints(
    filesystem: pyarrow_fs.FileSystem, directory: str, rows: list[dict[str, Any]]
) -> list[tuple[Checkpoint, dict[str, Any]]]:
    """The checkpoints in a trial's directory by number, each with the result that it was reported
    with, as far as that is known.
    """
    entries = filesystem.get_file_info(pyarrow_fs.FileSelector(directory))
    names = sorted(
        entry.base_name for entry in entries if entry.base_name.startswith(_CHECKPOINT_PREFIX)
    )
    reported: Mapping[Any, dict[str, Any]] = {row.get(CHECKPOINT_DIR_NAME): row for row in rows}
    return [
        (Checkpoint(directories.join(directory, name), filesystem), reported.get(name, {}))
        for name in names
    ]
