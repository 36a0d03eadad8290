"""What training with XGBoost and with LightGBM has in common: reports of boosting rounds, threads,
arguments of an older form.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from syncline.core.cgroups import cpu_count
from syncline.train import metric_values
from syncline.train.checkpoint import Checkpoint
from syncline.train.session import get_session, report


class Booster(Protocol):
    """A model of either library."""

    def save_model(self, path: str, /) -> object:
        """Write it to a file."""


@dataclass(frozen=True, kw_only=True)
class BoostingReports:
    """What the report callbacks say after which rounds.

    Raises:
        ValueError: for fields that cannot be meant.
    """

    metrics: str | Sequence[str] | Mapping[str, str] | None
    """Which of the logged metrics, as `metrics.select` takes them."""
    filename: str
    """The model's file in a checkpoint; its ending may choose the format."""
    frequency: int
    """So many rounds from one checkpoint to the next; 0: none on the way."""
    checkpoint_at_end: bool
    """Whether the finished model is a checkpoint."""
    postprocess: Callable[[dict[str, Any]], dict[str, Any]] | None
    """What the chosen metrics go through."""

    def __post_init__(self) -> None:
        if (
            isinstance(self.frequency, bool)
            or not isinstance(self.frequency, int)
            or self.frequency < 0
        ):
            raise ValueError(
                f"frequency={self.frequency!r} is no number of rounds: give 1 or more, or 0 for no checkpoints on the way."
            )
        if not self.filename or os.path.basename(self.filename) != self.filename:
            raise ValueError(
                f"filename={self.filename!r} is no name of a file: give one without directories, such as 'model.json'."
            )

    def is_due(self, rounds: int) -> bool:
        """Whether a checkpoint belongs after so many rounds, counted from 1."""
        return self.frequency > 0 and rounds % self.frequency == 0

    def report(self, logged: Mapping[str, Any], booster: Booster | None = None) -> None:
        """Report what was logged, with `booster` as checkpoint. Every rank calls this; they all
        have the same model, and rank 0 saves it.

        Raises:
            KeyError: a chosen metric was not logged.
            RuntimeError: outside a training function.
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
    """In a worker, before its library is imported: OpenMP shares the node's cores with its other
    workers, or obeys OMP_NUM_THREADS.
    """
    neighbours = get_session("boosting.share_cores").local_world_size
    if neighbours > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cpu_count() // neighbours)))


def refuse_older_form(trainer: str, **arguments: object) -> None:
    """TypeError if any of the arguments is given with which a trainer once made the training
    function itself.
    """
    given = ", ".join(f"`{name}`" for name, value in arguments.items() if value is not None)
    if given:
        raise TypeError(
            f"{trainer} no longer takes {given}: write a training function that reads `get_dataset_shard('train')` and calls the library's "
            f"own `train(...)` with `callbacks=[RayTrainReportCallback()]`, and pass it as `train_loop_per_worker`."
        )
