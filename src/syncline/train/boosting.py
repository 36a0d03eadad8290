"""Code shared by XGBoost and LightGBM: reports of boosting rounds, threads, removed arguments."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from syncline.core.cgroups import cpu_count
from syncline.train import metric_values
from syncline.train.checkpoint import Checkpoint
from syncline.train.session import get_session, report

Postprocess: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Function of the selected metrics that returns the metrics to report."""


class Booster(Protocol):
    """Model of either library."""

    def save_model(self, path: str, /) -> object:
        """Write the model to a file."""


@dataclass(frozen=True, kw_only=True)
class BoostingReports:
    """Configuration of the report callbacks.

    Raises:
        ValueError: A field is invalid.
    """

    metrics: str | Sequence[str] | Mapping[str, str] | None
    """Metrics to report, as for `metric_values.select`."""
    filename: str
    """File of the model in a checkpoint; its ending may select the format."""
    frequency: int
    """Rounds between two checkpoints; 0 for none before the end."""
    checkpoint_at_end: bool
    """Report the final model as a checkpoint."""
    postprocess: Postprocess | None
    """Applied to the selected metrics."""

    def __post_init__(self) -> None:
        if (
            isinstance(self.frequency, bool)
            or not isinstance(self.frequency, int)
            or self.frequency < 0
        ):
            raise ValueError(
                f"frequency={self.frequency!r} is not a number of rounds: pass 1 or more, or 0 "
                "for no checkpoints before the end."
            )
        if not self.filename or os.path.basename(self.filename) != self.filename:
            raise ValueError(
                f"filename={self.filename!r} is not a file name: pass one without directories, "
                "such as 'model.json'."
            )

    def is_due(self, rounds: int) -> bool:
        """Return True if a checkpoint is due after this number of rounds."""
        return self.frequency > 0 and rounds % self.frequency == 0

    def report(self, logged: metric_values.Metrics, booster: Booster | None = None) -> None:
        """Report logged metrics, and `booster` as a checkpoint.

        Every rank calls this. All have the same model, and rank 0 saves it.

        Raises:
            KeyError: A selected metric was not logged.
            RuntimeError: Outside of a training function.
        """
        chosen = metric_values.select(logged, self.metrics)
        if self.postprocess is not None:
            chosen = self.postprocess(chosen)
        if booster is None or get_session("report").world_rank != 0:
            report(chosen)
            return
        with tempfile.TemporaryDirectory(prefix="syncline-checkpoint-") as directory:
            booster.save_model(os.path.join(directory, self.filename))
            report(chosen, checkpoint=Checkpoint.from_directory(directory))


def share_cores() -> None:
    """Divide the cores of the node among its workers, unless OMP_NUM_THREADS is set.

    Called in a worker before its library is imported.
    """
    neighbours = get_session("boosting.share_cores").local_world_size
    if neighbours > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cpu_count() // neighbours)))


def refuse_older_form(trainer: str, **arguments: object) -> None:
    """Refuse arguments of older versions, with which a trainer created the training function.

    Raises:
        TypeError: One of them is not None.
    """
    given = ", ".join(f"`{name}`" for name, value in arguments.items() if value is not None)
    if given:
        raise TypeError(
            f"{trainer} no longer takes {given}. Write a training function that reads "
            "`get_dataset_shard('train')` and calls the library's own `train(...)` with "
            "`callbacks=[RayTrainReportCallback()]`, and pass it as `train_loop_per_worker`."
        )
