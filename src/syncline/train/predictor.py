"""`Predictor`: base class for applying the model of a checkpoint to batches."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import frames
from syncline.train.checkpoint import Checkpoint

if TYPE_CHECKING:
    import pandas as pd

    from syncline.data.preprocessor import Preprocessor

DataBatchType: TypeAlias = "np.ndarray | Mapping[str, np.ndarray] | pd.DataFrame | pa.Table"


class PredictorNotSerializableException(RuntimeError):
    """A predictor was pickled. Send its checkpoint and use `from_checkpoint` instead."""


class Predictor(abc.ABC):
    """Predicts on batches.

    A subclass implements `from_checkpoint` and one of `_predict_pandas` (a DataFrame to a
    DataFrame) and `_predict_numpy` (a dict of ndarrays, or one ndarray, to a dict of ndarrays), and
    calls `super().__init__`.

    Args:
        preprocessor: Applied to batches first.
    """

    def __init__(self, preprocessor: Preprocessor | None = None) -> None:
        self._preprocessor = preprocessor

    @classmethod
    @abc.abstractmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, **kwargs: Any) -> Predictor:
        """Return the predictor for the model of a checkpoint."""

    @classmethod
    def from_pandas_udf(cls, pandas_udf: Callable[..., pd.DataFrame]) -> Predictor:
        """Return a predictor from a function of a DataFrame and the keywords of `predict`."""
        return predictor_class_of(pandas_udf)()

    @classmethod
    def preferred_batch_format(cls) -> Literal["numpy", "pandas"]:
        """Return the batch format that needs no conversion."""
        return "numpy" if cls._predict_numpy is not Predictor._predict_numpy else "pandas"

    def get_preprocessor(self) -> Preprocessor | None:
        """Return the preprocessor of batches."""
        return self._preprocessor

    def set_preprocessor(self, preprocessor: Preprocessor | None) -> None:
        """Replace the preprocessor of batches."""
        self._preprocessor = preprocessor

    def predict(self, data: DataBatchType, **kwargs: Any) -> Any:
        """Return the predictions for a batch, as a DataFrame, a table or a dict of ndarrays like
        `data`.

        Args:
            data: An ndarray, a dict of them, a DataFrame or a table.
            **kwargs: For the predictor's own method.
        """
        batch: Any = (
            data if self._preprocessor is None else self._preprocessor.transform_batch(data)
        )
        if self.preferred_batch_format() == "numpy":
            predictions: Any = self._predict_numpy(_arrays(batch), **kwargs)
        else:
            named = {"data": batch} if isinstance(batch, np.ndarray) else batch
            frame = named if frames.is_frame(named) else frames.to_frame(blocks.from_batch(named))
            predictions = self._predict_pandas(frame, **kwargs)
        return _as(data, predictions)

    def _predict_pandas(self, data: pd.DataFrame, **kwargs: Any) -> pd.DataFrame:
        raise NotImplementedError(
            f"{type(self).__name__} implements neither _predict_pandas nor _predict_numpy"
        )

    def _predict_numpy(
        self, data: np.ndarray | dict[str, np.ndarray], **kwargs: Any
    ) -> np.ndarray | dict[str, np.ndarray]:
        raise NotImplementedError

    def __reduce__(self) -> NoReturn:
        raise PredictorNotSerializableException(
            f"A {type(self).__name__} cannot be sent to another process: send its checkpoint, and "
            "use from_checkpoint there."
        )


def predictor_class_of(pandas_udf: Callable[..., pd.DataFrame]) -> type[Predictor]:
    """Return a predictor class for a function on DataFrames."""

    class PandasUDFPredictor(Predictor):
        """Calls the function; needs no checkpoint."""

        @classmethod
        def from_checkpoint(cls, checkpoint: Checkpoint, **kwargs: Any) -> Predictor:
            return cls()

        def _predict_pandas(self, data: pd.DataFrame, **kwargs: Any) -> pd.DataFrame:
            return pandas_udf(data, **kwargs)

    return PandasUDFPredictor


def _arrays(batch: Any) -> Any:
    if isinstance(batch, np.ndarray):
        return batch
    return (
        dict(batch)
        if isinstance(batch, Mapping)
        else blocks.to_batch(blocks.from_batch(batch), "numpy")
    )


def _as(data: Any, predictions: Any) -> Any:
    """Return the predictions as the type of batch of `data`."""
    named = {"predictions": predictions} if isinstance(predictions, np.ndarray) else predictions
    if isinstance(data, pa.Table):
        return blocks.from_batch(named)
    if frames.is_frame(data):
        return (
            named
            if frames.is_frame(named)
            else frames.to_frame(blocks.from_batch(named)).set_index(data.index)
        )
    return _arrays(named)
