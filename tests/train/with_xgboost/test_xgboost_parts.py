"""XGBoost in the program's own process: the callback, checkpoints, what trainers refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncline import train

xgb = pytest.importorskip("syncline.train.xgboost", exc_type=ImportError)

PARAMETERS = {"objective": "reg:squarederror", "nthread": 1}


def rows() -> Any:
    import xgboost

    x = np.random.default_rng(0).normal(size=(50, 3))
    return xgboost.DMatrix(x, label=x.sum(axis=1))


def booster(rounds: int = 2) -> Any:
    import xgboost

    return xgboost.train(PARAMETERS, rows(), rounds)


def train_here(callback: Any, rounds: int, **options: Any) -> train.Result:
    def loop() -> int:
        import xgboost

        matrix = rows()
        model = xgboost.train(
            PARAMETERS,
            matrix,
            rounds,
            evals=[(matrix, "train")],
            callbacks=[callback],
            verbose_eval=False,
            **options,
        )
        return int(model.num_boosted_rounds())

    return xgb.XGBoostTrainer(loop, scaling_config=train.ScalingConfig(num_workers=0)).fit()


def test_every_round_is_reported_and_final_model() -> None:
    result = train_here(xgb.RayTrainReportCallback(), rounds=4)
    assert [set(report["metrics"]) for report in result.reports] == [{"train-rmse"}] * 5
    assert result.checkpoint is not None


@pytest.mark.parametrize(("rounds", "reports"), [(4, 4), (5, 6)])
def test_just_saved_model_is_not_saved_again_at_end(rounds: int, reports: int) -> None:
    assert len(train_here(xgb.RayTrainReportCallback(frequency=2), rounds).reports) == reports


def test_continued_model_is_saved_at_end() -> None:
    # Two rounds after three: the checkpoint of round 2 must not pass for that of the whole model of
    # 5.
    callback = xgb.RayTrainReportCallback(frequency=2)
    assert len(train_here(callback, rounds=2, xgb_model=booster(3)).reports) == 2
    assert len(train_here(callback, rounds=1, xgb_model=booster(1)).reports) == 2


def test_final_checkpoint_can_be_disabled() -> None:
    result = train_here(
        xgb.RayTrainReportCallback(checkpoint_at_end=False, metrics={"error": "train-rmse"}),
        rounds=2,
    )
    assert result.checkpoint is None
    assert set(result.metrics or {}) == {"error"}


def test_checkpoint_returns_its_model(tmp_path: Path) -> None:
    model = booster()
    for path in (None, tmp_path):
        checkpoint = xgb.XGBoostCheckpoint.from_model(model, path=path)
        assert checkpoint.get_model().save_raw("json") == model.save_raw("json")
    assert [file.name for file in tmp_path.iterdir()] == [xgb.XGBoostCheckpoint.MODEL_FILENAME]
    with pytest.raises(ValueError, match="not a directory"):
        xgb.XGBoostCheckpoint.from_model(model, path=tmp_path / "nowhere")


def test_callback_reads_its_own_checkpoints(tmp_path: Path) -> None:
    model = booster()
    model.save_model(str(tmp_path / "model.ubj"))
    checkpoint = train.Checkpoint.from_directory(tmp_path)
    assert xgb.RayTrainReportCallback.get_model(checkpoint).num_boosted_rounds() == 2
    assert xgb.XGBoostTrainer.get_model(checkpoint).num_boosted_rounds() == 2


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"params": {}}, TypeError, "no longer takes `params`"),
        ({"xgboost_config": {}}, TypeError, "`xgboost_config` is a dict"),
        ({"scaling_config": 2}, ValueError, "`scaling_config` is a int"),
    ],
)
def test_trainer_refuses_invalid_arguments(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        xgb.XGBoostTrainer(lambda: None, **options)


def test_unknown_communicator_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="'federated'"):
        xgb.XGBoostConfig("federated")
