"""Code shared by XGBoost and LightGBM: checkpoints, reports of boosting rounds, threads, removed
arguments.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from syncline.core import thread_limits
from syncline.core.cgroups import cpu_count
from syncline.train import metric_values
from syncline.train.checkpoint import Checkpoint
from syncline.train.framework_checkpoint import FrameworkCheckpoint
from syncline.train.session import get_session, report

if TYPE_CHECKING:
    from syncline.data.preprocessor import Preprocessor

SelfT = TypeVar("SelfT", bound="BoosterCheckpoint")

Postprocess: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Function of the selected metrics that returns the metrics to report."""


class Booster(Protocol):
    """Model of either library."""

    def save_model(self, path: str, /) -> object:
        """Write the model to a file."""


class BoostingReportCallback:
    """Base class of the report callbacks of both libraries, which document the arguments."""

    CHECKPOINT_NAME: str
    """Default name of the model's file."""

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        filename: str | None = None,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Postprocess | None = None,
    ) -> None:
        super().__init__()
        if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 0:
            raise ValueError(
                f"frequency={frequency!r} is not a number of rounds: pass 1 or more, or 0 "
                "for no checkpoints before the end."
            )
        filename = self.CHECKPOINT_NAME if filename is None else filename
        if not filename or os.path.basename(filename) != filename:
            raise ValueError(
                f"filename={filename!r} is not a file name: pass one without directories, "
                "such as 'model.json'."
            )
        self._metrics = metrics
        self._filename = filename
        self._frequency = frequency
        self._checkpoint_at_end = checkpoint_at_end
        self._postprocess = results_postprocessing_fn

    def _is_due(self, rounds: int) -> bool:
        """Return True if a checkpoint is due after this number of rounds."""
        return self._frequency > 0 and rounds % self._frequency == 0

    def _report(self, logged: metric_values.Metrics, booster: Booster | None = None) -> None:
        """Report logged metrics, and `booster` as a checkpoint.

        Every rank calls this. All have the same model, and rank 0 saves it.

        Raises:
            KeyError: A selected metric was not logged.
            RuntimeError: Outside of a training function.
        """
        chosen = metric_values.select(logged, self._metrics)
        if self._postprocess is not None:
            chosen = self._postprocess(chosen)
        if booster is None or get_session("report").world_rank != 0:
            report(chosen)
            return
        with tempfile.TemporaryDirectory(prefix="syncline-checkpoint-") as directory:
            booster.save_model(os.path.join(directory, self._filename))
            report(chosen, checkpoint=Checkpoint.from_directory(directory))


class BoosterCheckpoint(FrameworkCheckpoint):
    """Checkpoint with one file, `MODEL_FILENAME`."""

    MODEL_FILENAME: str
    """Name of the file, written by `Booster.save_model`."""

    @classmethod
    def from_model(
        cls: type[SelfT],
        booster: Booster,
        *,
        preprocessor: Preprocessor | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> SelfT:
        """Create a checkpoint of a model.

        Args:
            booster: Model; that of an estimator is its `booster_` or `get_booster()`.
            preprocessor: Preprocessor of the model's input, for predictors.
            path: Empty directory for the checkpoint; by default a temporary one, deleted with
                this object.

        Raises:
            ValueError: The directory `path` does not exist.
        """
        return cls._written(
            lambda directory: booster.save_model(os.path.join(directory, cls.MODEL_FILENAME)),
            preprocessor=preprocessor,
            path=path,
        )


def share_cores() -> None:
    """Divide the cores of the node among its workers, unless OMP_NUM_THREADS is set.

    Called in a worker before its library is imported.
    """
    neighbours = get_session("boosting.share_cores").local_world_size
    if neighbours > 1:
        thread_limits.limit(thread_limits.threads_for(cpu_count() // neighbours))
    else:
        thread_limits.lift()


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
