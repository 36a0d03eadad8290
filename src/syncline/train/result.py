"""`Result`: outcome of a run, returned by `fit()` or read from the run directory."""

from __future__ import annotations

import os
import pprint
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pyarrow import fs as pyarrow_fs

from syncline.runs import RunRecord
from syncline.runs.json_values import JsonObject, Record
from syncline.storage import filesystem as directories
from syncline.train import metric_values
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import CheckpointConfig
from syncline.train.controller.checkpoint_manager import CheckpointManager
from syncline.train.errors import TrainingFailedError
from syncline.train.storage.context import ArrowFiles

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, repr=False, kw_only=True)
class Result:
    """Outcome of a run."""

    metrics: JsonObject | None
    """Latest report of rank 0; None if there was none."""

    checkpoint: Checkpoint | None
    """Latest checkpoint."""

    error: Exception | None = None
    """Error of the run. Only `from_path` sets it, since `fit()` raises."""

    path: str = ""
    """Run directory, a path on `filesystem`."""

    best_checkpoints: list[tuple[Checkpoint, JsonObject]] = field(default_factory=list)
    """Checkpoints kept for their score, with their metrics, worst to best."""

    return_value: Any = None
    """Return value of the training function on rank 0; None if read from a directory."""

    reports: list[JsonObject] = field(default_factory=list)
    """Reports of rank 0 in order: {"iteration", "time", "rank", "metrics"}."""

    storage_filesystem: pyarrow_fs.FileSystem | None = None
    """See `filesystem`."""

    @property
    def filesystem(self) -> pyarrow_fs.FileSystem:
        """Filesystem of `path`; by default the local one."""
        return self.storage_filesystem or pyarrow_fs.LocalFileSystem()

    @property
    def metrics_dataframe(self) -> pandas.DataFrame | None:
        """Reports of rank 0 as a pandas table, nested metrics as `a/b`; None without reports."""
        if not self.reports:
            return None
        import pandas  # takes a third of a second to load

        table: pandas.DataFrame = pandas.DataFrame([_row(report) for report in self.reports])
        return table

    def get_best_checkpoint(self, metric: str, mode: Literal["max", "min"]) -> Checkpoint | None:
        """Return the kept checkpoint with the highest or lowest `metric`; None if none is kept.

        A nested metric is given as `a/b`. Of equal metrics, the later checkpoint is returned.

        Raises:
            ValueError: `mode` is neither "max" nor "min".
            RuntimeError: No kept checkpoint has a number under that name.
        """
        if mode not in ("max", "min"):
            raise ValueError(f'get_best_checkpoint(mode={mode!r}): pass "max" or "min".')
        if not self.best_checkpoints:
            return None
        best: tuple[float, Checkpoint] | None = None
        for checkpoint, metrics in self.best_checkpoints:
            value = metric_values.score(metrics, metric, mode)
            if value is not None and (best is None or value >= best[0]):
                best = value, checkpoint
        if best is None:
            names = sorted(
                {
                    name
                    for _, metrics in self.best_checkpoints
                    for name in metric_values.flatten(metrics)
                }
            )
            raise RuntimeError(
                f"No checkpoint of this run has a number under {metric!r}. Metrics: {names}."
            )
        return best[1]

    @classmethod
    def from_path(
        cls, path: str | os.PathLike[str], storage_filesystem: pyarrow_fs.FileSystem | None = None
    ) -> Result:
        """Read the result of a run from its directory, also if it failed, was killed or still runs.

        Args:
            path: The run directory, or its URI.
            storage_filesystem: Filesystem of `path`; by default derived from it.

        Raises:
            RuntimeError: There is no such directory, or no run in it.
            ValueError: pyarrow does not know the URI, or the record is damaged.
        """
        filesystem, directory = directories.resolve(path, storage_filesystem)
        if not directories.is_directory(filesystem, directory):
            raise RuntimeError(
                f"There is no directory {directory!r} on the {filesystem.type_name} filesystem. "
                "Pass the run directory: `storage_path`/`name` of its RunConfig, or `result.path`."
            )
        record = RunRecord(ArrowFiles(filesystem, directory))
        if not record.exists():
            raise RuntimeError(
                f"{directory!r} has no run.json, so it is not a run directory. Pass the run "
                "directory: `storage_path`/`name` of its RunConfig, or `result.path`."
            )
        return _from_record(cls, record, filesystem, directory)

    def __repr__(self) -> str:
        shown = {
            "metrics": self.metrics,
            "checkpoint": self.checkpoint,
            "error": self.error,
            "path": self.path,
            "best_checkpoints": len(self.best_checkpoints),
            "return_value": self.return_value,
        }
        lines = [
            f"  {name}={pprint.pformat(value, indent=1, width=110, compact=True, sort_dicts=False)}"
            for name, value in shown.items()
        ]
        return "Result(\n" + ",\n".join(line.replace("\n", "\n    ") for line in lines) + ",\n)"


def _from_record(
    kind: type[Result], record: RunRecord, filesystem: pyarrow_fs.FileSystem, directory: str
) -> Result:
    state = record.checkpoints()
    latest: Checkpoint | None = None
    best: list[tuple[Checkpoint, JsonObject]] = []
    if state is not None:

        def locate(name: str) -> Checkpoint:
            return Checkpoint(directories.join(directory, name), filesystem)

        manager = CheckpointManager.from_json(state, CheckpointConfig(), locate)
        latest = manager.latest.checkpoint if manager.latest else None
        # In the recorded order, as the ranking depends on the configuration of the run.
        entries = {entry.checkpoint.path: entry for entry in manager.registered}
        paths = [directories.join(directory, name) for name in state.get("best", [])]
        best = [
            (entries[path].checkpoint, entries[path].metrics) for path in paths if path in entries
        ]
    reports = record.reports(rank=0)
    failure = (record.outcome() or {}).get("error")
    return kind(
        metrics=reports[-1]["metrics"] if reports else None,
        checkpoint=latest,
        error=TrainingFailedError(failure) if failure else None,
        path=directory,
        best_checkpoints=best,
        reports=reports,
        storage_filesystem=filesystem,
    )


def _row(report: Record) -> JsonObject:
    """Return a report as a table row: its metrics, iteration and time."""
    row = metric_values.flatten(report["metrics"])
    row.setdefault("iteration", report["iteration"])
    row.setdefault("time", report["time"])
    return row
