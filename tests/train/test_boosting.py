"""Code shared by the callbacks of XGBoost and LightGBM."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from syncline import train
from syncline.train.boosting import BoostingReportCallback, refuse_older_form


class Model:
    def save_model(self, path: str, /) -> None:
        Path(path).write_text("trees")


class Callback(BoostingReportCallback):
    CHECKPOINT_NAME = "model"


def local(function: Any) -> train.Result:
    return train.DataParallelTrainer(
        function, scaling_config=train.ScalingConfig(num_workers=0)
    ).fit()


def test_frequency_counts_rounds_and_zero_disables() -> None:
    assert [n for n in range(1, 8) if Callback(frequency=3)._is_due(n)] == [3, 6]
    assert not any(Callback()._is_due(n) for n in range(1, 8))


@pytest.mark.parametrize(
    "fields",
    [
        {"frequency": -1},
        {"frequency": 1.5},
        {"frequency": True},
        {"filename": ""},
        {"filename": "a/b"},
        {"filename": "../b"},
    ],
)
def test_invalid_fields_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        Callback(**fields)


def test_metrics_are_selected_then_postprocessed_and_reported_with_model() -> None:
    chosen = Callback(
        metrics={"loss": "train-rmse"},
        filename="model.x",
        results_postprocessing_fn=lambda metrics: {"half": metrics["loss"] / 2},
    )

    def loop() -> list[str]:
        chosen._report({"train-rmse": 4.0, "train-mae": 1.0})
        assert train.get_checkpoint() is None
        chosen._report({"train-rmse": 2.0}, Model())
        checkpoint = train.get_checkpoint()
        assert checkpoint is not None
        return [os.path.basename(checkpoint.path)]

    assert local(loop).metrics == {"half": 1.0}


def test_older_arguments_are_refused_with_replacement() -> None:
    refuse_older_form("XGBoostTrainer", params=None, label_column=None)
    with pytest.raises(
        TypeError,
        match=r"XGBoostTrainer no longer takes `params`, `label_column`. Write a training function",
    ):
        refuse_older_form("XGBoostTrainer", params={}, label_column="y")
