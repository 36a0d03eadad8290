"""`BatchPredictor`: applies the model of a checkpoint to a dataset in a pool of actors.

For compatibility: new programs pass a class to `Dataset.map_batches`, as is done here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncline.data.columnar import frames
from syncline.data.columnar.schemas import require_columns
from syncline.data.plan.compute import ActorPoolStrategy
from syncline.train.checkpoint import Checkpoint
from syncline.train.framework_checkpoint import FrameworkCheckpoint
from syncline.train.predictor import Predictor, predictor_class_of

if TYPE_CHECKING:
    import pandas as pd

    from syncline.data.dataset import Dataset
    from syncline.data.preprocessor import Preprocessor


class BatchPredictor:
    """Predicts on datasets.

    Args:
        checkpoint: Checkpoint of the model.
        predictor_cls: Predictor, created once in each actor.
        **predictor_kwargs: Arguments of `predictor_cls.from_checkpoint`.
    """

    def __init__(
        self, checkpoint: Checkpoint | None, predictor_cls: type[Predictor], **predictor_kwargs: Any
    ) -> None:
        self._checkpoint = checkpoint
        self._predictor_cls = predictor_cls
        self._predictor_kwargs = predictor_kwargs
        self._preprocessor: Preprocessor | None = None

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, predictor_cls: type[Predictor], **kwargs: Any
    ) -> BatchPredictor:
        """Same as the constructor."""
        return cls(checkpoint, predictor_cls, **kwargs)

    @classmethod
    def from_pandas_udf(cls, pandas_udf: Callable[..., pd.DataFrame]) -> BatchPredictor:
        """Return a predictor from a function of a DataFrame and the keywords of `predict`."""
        return cls(None, predictor_class_of(pandas_udf))

    def get_preprocessor(self) -> Preprocessor | None:
        """Return the preprocessor that was set, or that of the checkpoint."""
        if self._preprocessor is not None or self._checkpoint is None:
            return self._preprocessor
        return FrameworkCheckpoint.of(self._checkpoint).get_preprocessor()

    def set_preprocessor(self, preprocessor: Preprocessor) -> None:
        """Replace the checkpoint's preprocessor."""
        self._preprocessor = preprocessor

    def predict(
        self,
        data: Dataset,
        *,
        feature_columns: list[str] | None = None,
        keep_columns: list[str] | None = None,
        batch_size: int = 4096,
        min_scoring_workers: int = 1,
        max_scoring_workers: int | None = None,
        num_cpus_per_worker: float | None = None,
        num_gpus_per_worker: float | None = None,
        separate_gpu_stage: bool = True,
        ray_remote_args: dict[str, Any] | None = None,
        **predict_kwargs: Any,
    ) -> Dataset:
        """Return the dataset of the predictions, computed when it is read.

        Args:
            data: The dataset.
            feature_columns: The columns, after preprocessing, that the model gets, in this order;
                all if None.
            keep_columns: Columns of the result in addition to the predictions.
            batch_size: Rows per call.
            min_scoring_workers: Actors that are kept.
            max_scoring_workers: The most actors; None for as many as there is room for.
            num_cpus_per_worker: CPUs per actor: by default 1, or 0 with GPUs.
            num_gpus_per_worker: GPUs per actor, which the predictor uses.
            separate_gpu_stage: Accepted for older programs: preprocessing is always a separate
                stage without GPUs.
            ray_remote_args: Further options of `remote` for the actors.
            **predict_kwargs: For the predictor's `predict`.
        """
        preprocessor = self.get_preprocessor()
        gpus = num_gpus_per_worker or 0
        predictor_kwargs = dict(self._predictor_kwargs)
        if gpus and "use_gpu" in inspect.signature(self._predictor_cls.from_checkpoint).parameters:
            predictor_kwargs.setdefault("use_gpu", True)
        scoring = _Scoring(
            checkpoint=self._checkpoint,
            predictor_cls=self._predictor_cls,
            predictor_kwargs=predictor_kwargs,
            feature_columns=feature_columns,
            keep_columns=keep_columns or [],
            predict_kwargs=predict_kwargs,
        )
        return (data if preprocessor is None else preprocessor.transform(data)).map_batches(
            _Scorer,
            fn_constructor_args=(scoring,),
            batch_size=batch_size,
            batch_format=self._predictor_cls.preferred_batch_format(),
            compute=ActorPoolStrategy(min_size=min_scoring_workers, max_size=max_scoring_workers),
            num_cpus=num_cpus_per_worker if num_cpus_per_worker is not None else (0 if gpus else 1),
            num_gpus=gpus or None,
            **(ray_remote_args or {}),
        )

    def predict_pipelined(
        self,
        data: Dataset,
        *,
        blocks_per_window: int | None = None,
        bytes_per_window: int | None = None,
        **kwargs: Any,
    ) -> Dataset:
        """Call `predict`. The window sizes have no effect, since all datasets stream."""
        return self.predict(data, **kwargs)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(checkpoint={self._checkpoint}, "
            f"predictor_cls={self._predictor_cls.__name__})"
        )


@dataclass(frozen=True, kw_only=True)
class _Scoring:
    """Arguments of a scoring actor."""

    checkpoint: Checkpoint | None
    predictor_cls: type[Predictor]
    predictor_kwargs: dict[str, Any]
    feature_columns: list[str] | None
    keep_columns: list[str]
    predict_kwargs: dict[str, Any]


class _Scorer:
    """Loads the model when the actor starts, and predicts on batches."""

    def __init__(self, scoring: _Scoring) -> None:
        self._scoring = scoring
        self._predictor = scoring.predictor_cls.from_checkpoint(
            scoring.checkpoint,  # type: ignore[arg-type]  # None for a pandas function
            **scoring.predictor_kwargs,
        )
        self._predictor.set_preprocessor(None)  # applied in a separate stage

    def __call__(self, batch: Any) -> Any:
        features = (
            batch
            if self._scoring.feature_columns is None
            else _selected(batch, self._scoring.feature_columns)
        )
        predictions = self._predictor.predict(features, **self._scoring.predict_kwargs)
        kept = _selected(batch, self._scoring.keep_columns)
        if frames.is_frame(predictions):
            return predictions.assign(
                **{name: kept[name].to_numpy() for name in self._scoring.keep_columns}
            )
        return {**predictions, **kept}


def _selected(batch: Any, names: list[str]) -> Any:
    """Return columns of a batch; UnknownColumnError for an unknown name."""
    require_columns(names, list(batch))
    return {name: batch[name] for name in names} if isinstance(batch, Mapping) else batch[names]
