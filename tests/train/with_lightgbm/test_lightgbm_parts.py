"""LightGBM in the program's own process: the callback, checkpoints, frames, what trainers
refuse.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from syncline import train

lgb = pytest.importorskip("syncline.train.lightgbm", exc_type=ImportError)

PARAMETERS = {"objective": "regression", "verbose": -1, "num_threads": 1, "min_data_in_leaf": 2}


def rows() -> Any:
    import lightgbm

    x = np.random.default_rng(0).normal(size=(50, 3))
    return lightgbm.Dataset(x, label=x.sum(axis=1))


def train_here(callback: Any, rounds: int) -> train.Result:
    def loop() -> int:
        import lightgbm

        parameters = {**PARAMETERS, "metric": ["l1", "l2"], **lgb.get_network_params()}
        return int(
            lightgbm.train(
                parameters, rows(), rounds, valid_sets=[rows()], callbacks=[callback]
            ).num_trees()
        )

    return lgb.LightGBMTrainer(loop, scaling_config=train.ScalingConfig(num_workers=0)).fit()


def test_every_round_is_reported_and_last_one_with_model() -> None:
    result = train_here(lgb.RayTrainReportCallback(), rounds=3)
    assert [set(report["metrics"]) for report in result.reports] == [
        {"valid_0-l1", "valid_0-l2"}
    ] * 3
    assert result.checkpoint is not None


def test_checkpoints_can_be_disabled() -> None:
    result = train_here(
        lgb.RayTrainReportCallback(checkpoint_at_end=False, metrics="valid_0-l2"), rounds=2
    )
    assert result.checkpoint is None
    assert set(result.metrics or {}) == {"valid_0-l2"}


def test_cross_validation_is_reported_as_mean_and_deviation() -> None:
    def loop() -> None:
        entry = ("valid", "l2", 0.5, False, 0.1)
        lgb.RayTrainReportCallback()(
            SimpleNamespace(
                model=None, iteration=0, end_iteration=2, evaluation_result_list=[entry]
            )
        )

    result = train.DataParallelTrainer(
        loop, scaling_config=train.ScalingConfig(num_workers=0)
    ).fit()
    assert result.metrics == {"valid-l2-mean": 0.5, "valid-l2-stdv": 0.1}


def test_network_params_outside_training_are_empty(caplog: pytest.LogCaptureFixture) -> None:
    assert lgb.get_network_params() == {}
    assert "outside a training function" in caplog.text


def test_checkpoint_returns_its_model(tmp_path: Path) -> None:
    import lightgbm

    model = lightgbm.train(PARAMETERS, rows(), 2)
    for path in (None, tmp_path):
        assert lgb.LightGBMCheckpoint.from_model(model, path=path).get_model().num_trees() == 2
    checkpoint = train.Checkpoint.from_directory(tmp_path)
    assert lgb.RayTrainReportCallback.get_model(checkpoint).num_trees() == 2
    assert lgb.LightGBMTrainer.get_model(checkpoint).num_trees() == 2


@pytest.mark.parametrize(
    ("arrow", "nullable"),
    [
        ("int8", "Int8"),
        ("uint32", "UInt32"),
        ("float", "Float32"),
        ("double", "Float64"),
        ("halffloat", "Float32"),
        ("bool", "boolean"),
    ],
)
def test_numeric_arrow_columns_become_nullable(arrow: str, nullable: str) -> None:
    values: Any = [1, None]
    frame = pd.DataFrame({"x": pd.Series(values, dtype=pd.ArrowDtype(pa.type_for_alias(arrow)))})
    normal = lgb.normalize_pandas_for_lightgbm(frame)
    assert str(normal["x"].dtype) == nullable
    assert normal["x"].isna().tolist() == [False, True]


def test_other_columns_are_unchanged() -> None:
    frame = pd.DataFrame(
        {"x": np.arange(2.0), "name": pd.Series(["a", "b"], dtype=pd.ArrowDtype(pa.string()))}
    )
    assert lgb.normalize_pandas_for_lightgbm(frame) is frame


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_boost_round": 3}, "no longer takes `num_boost_round`"),
        ({"lightgbm_config": {}}, "`lightgbm_config` is a dict"),
    ],
)
def test_trainer_refuses_invalid_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        lgb.LightGBMTrainer(lambda: None, **options)
