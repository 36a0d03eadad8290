"""Predictions with torch models."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch import nn

from syncline.data.preprocessor import Preprocessor
from syncline.data.preprocessors import Concatenator, SimpleImputer
from syncline.train import Checkpoint
from syncline.train.predictor import PredictorNotSerializableException
from syncline.train.torch import TorchCheckpoint, TorchPredictor


def summing(width: int) -> nn.Linear:
    """A layer whose output `(rows, 1)` is the sum of its input `(rows, width)`."""
    layer = nn.Linear(width, 1, bias=False)
    nn.init.ones_(layer.weight)
    return layer


class OfColumns(nn.Module):
    def forward(self, columns: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {
            "sum": columns["a"] + columns["b"],
            "training": torch.full_like(columns["a"], self.training),
        }


def test_ndarray_or_single_column_is_passed_as_tensor() -> None:
    predictor = TorchPredictor(summing(2))
    array = np.array([[1, 2], [3, 4]])
    assert predictor.predict(array, dtype=torch.float)["predictions"].tolist() == [[3.0], [7.0]]
    assert predictor.predict({"x": array.astype(np.float64)})["predictions"].dtype == np.float32
    assert predictor.predict(pa.table({"x": pa.array([[1.0, 2.0]])})).column(
        "predictions"
    ).to_pylist() == [[3.0]]


def test_several_columns_are_passed_as_dict_if_model_takes_one() -> None:
    predictor = TorchPredictor(OfColumns())
    frame = predictor.predict(pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4]}, index=[5, 6]))
    assert frame["sum"].tolist() == [4.0, 6.0]
    assert frame["training"].tolist() == [0.0, 0.0]
    assert frame.index.tolist() == [5, 6]
    with pytest.raises(KeyError, match="'b'"):
        predictor.predict({"a": np.ones(2), "c": np.ones(2)})


def test_several_columns_are_stacked_if_model_takes_no_dict() -> None:
    predictor = TorchPredictor(nn.Sequential(summing(3)))
    for _ in range(2):
        result = predictor.predict(
            {"a": np.array([1, 2]), "b": np.array([0.5, 0.5]), "c": np.array([True, False])}
        )
        assert result["predictions"].tolist() == [[2.5], [2.5]]


def test_error_of_model_for_unstackable_columns_is_raised() -> None:
    with pytest.raises(TypeError, match="must be Tensor, not dict"):
        TorchPredictor(summing(2)).predict({"a": np.ones((2, 2)), "b": np.ones((2, 3))})
    with pytest.raises(TypeError, match="column 's' holds values of type str"):
        TorchPredictor(summing(2)).predict({"s": np.array(["x"], object)})


def test_output_that_is_not_a_tensor_is_refused() -> None:
    class Pair(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x, x

    with pytest.raises(TypeError, match="The model returned tuple for 'predictions'"):
        TorchPredictor(Pair()).predict(np.ones(2))


def test_checkpoint_has_preprocessor_of_its_model() -> None:
    checkpoint = TorchCheckpoint.from_model(summing(2), preprocessor=Concatenator(["a", "b"]))
    plain = Checkpoint(checkpoint.path, checkpoint.filesystem)
    predictor = TorchPredictor.from_checkpoint(plain)
    assert isinstance(predictor.get_preprocessor(), Concatenator)
    assert predictor.predict(pd.DataFrame({"a": [1.0], "b": [2.0]}))["predictions"].iloc[
        0
    ].tolist() == [3.0]
    checkpoint.set_preprocessor(SimpleImputer(["a"], "constant", 0.0))
    assert isinstance(checkpoint.get_preprocessor(), Preprocessor)
    assert repr(checkpoint.get_preprocessor()).startswith("SimpleImputer")
    assert TorchCheckpoint.from_model(summing(1)).get_preprocessor() is None


def test_state_dict_needs_architecture() -> None:
    checkpoint = TorchCheckpoint.from_state_dict(summing(2).state_dict())
    predictor = TorchPredictor.from_checkpoint(checkpoint, nn.Linear(2, 1, bias=False))
    assert predictor.predict(np.ones((1, 2), np.float32))["predictions"].tolist() == [[2.0]]


def test_predictors_cannot_be_pickled() -> None:
    with pytest.raises(PredictorNotSerializableException, match="send its checkpoint"):
        pickle.dumps(TorchPredictor(summing(1)))
