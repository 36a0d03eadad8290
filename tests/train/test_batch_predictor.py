"""Predictions of a checkpoint's model on datasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from torch import nn

import syncline
import syncline.data
from syncline.data import UnknownColumnError
from syncline.data.preprocessors import MinMaxScaler
from syncline.train import Checkpoint
from syncline.train.batch_predictor import BatchPredictor
from syncline.train.predictor import Predictor
from syncline.train.torch import TorchCheckpoint, TorchPredictor


@pytest.fixture(autouse=True)
def local_mode() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def summing(width: int) -> nn.Linear:
    layer = nn.Linear(width, 1, bias=False)
    nn.init.ones_(layer.weight)
    return layer


@pytest.fixture
def rows() -> Any:
    return syncline.data.from_pandas(
        pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [10, 20, 30], "label": ["x", "y", "z"]})
    )


def test_predictions_keep_row_order_and_kept_columns(rows: Any) -> None:
    predictor = BatchPredictor(TorchCheckpoint.from_model(summing(2)), TorchPredictor)
    predictions = predictor.predict(
        rows, feature_columns=["a", "b"], keep_columns=["label"], batch_size=2
    )
    assert sorted(predictions.schema().names) == ["label", "predictions"]
    batch = predictions.take_batch(3)
    assert batch["predictions"].tolist() == [[11.0], [22.0], [33.0]]
    assert batch["label"].tolist() == ["x", "y", "z"]


def test_pipelined_prediction_uses_all_columns_and_ignores_windows(rows: Any) -> None:
    predictor = BatchPredictor.from_checkpoint(
        TorchCheckpoint.from_model(summing(2)), TorchPredictor
    )
    predictions = predictor.predict_pipelined(rows.drop_columns(["label"]), blocks_per_window=10)
    values = [
        value
        for batch in predictions.iter_batches(batch_size=2)
        for value in batch["predictions"].ravel().tolist()
    ]
    assert values == [11.0, 22.0, 33.0]


def test_preprocessor_of_checkpoint_is_applied_unless_replaced(rows: Any) -> None:
    checkpoint = TorchCheckpoint.from_model(summing(2), preprocessor=MinMaxScaler(["a"]).fit(rows))
    predictor = BatchPredictor(checkpoint, TorchPredictor)
    assert isinstance(predictor.get_preprocessor(), MinMaxScaler)
    assert predictor.predict(rows, feature_columns=["a", "b"]).take_batch(3)[
        "predictions"
    ].tolist() == [[10.0], [20.5], [31.0]]
    predictor.set_preprocessor(MinMaxScaler(["b"]).fit(rows))
    assert predictor.predict(rows, feature_columns=["a", "b"]).take_batch(3)[
        "predictions"
    ].tolist() == [[1.0], [2.5], [4.0]]


def test_function_on_frames_predicts(rows: Any) -> None:
    predictor = BatchPredictor.from_pandas_udf(
        lambda frame, factor: pd.DataFrame({"p": frame["a"] * factor})
    )
    result = predictor.predict(
        rows, feature_columns=["a"], keep_columns=["label"], factor=2
    ).to_pandas()
    assert result["p"].tolist() == [2.0, 4.0, 6.0]
    assert result["label"].tolist() == ["x", "y", "z"]


def test_custom_predictor(rows: Any, tmp_path: Any) -> None:
    class Adding(Predictor):
        def __init__(self, number: float) -> None:
            super().__init__()
            self.number = number

        @classmethod
        def from_checkpoint(cls, checkpoint: Checkpoint, **kwargs: Any) -> Predictor:
            with checkpoint.as_directory() as directory, open(f"{directory}/number") as file:
                return cls(float(file.read()) + kwargs["more"])

        def _predict_numpy(self, data: Any, **kwargs: Any) -> Any:
            return {"p": data["a"] + self.number}

    (tmp_path / "number").write_text("4")
    predictor = BatchPredictor(Checkpoint.from_directory(tmp_path), Adding, more=1)
    assert predictor.predict(rows).take_batch(3)["p"].tolist() == [6.0, 7.0, 8.0]


def test_missing_feature_is_named(rows: Any) -> None:
    predictor = BatchPredictor(TorchCheckpoint.from_model(summing(1)), TorchPredictor)
    with pytest.raises(UnknownColumnError, match="Did you mean 'label'"):
        predictor.predict(rows, feature_columns=["labels"]).materialize()
