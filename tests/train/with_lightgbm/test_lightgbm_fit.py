"""LightGBM with two real workers: one model of all rows, reported on the way, continued from a
checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import data, train

train_lightgbm = pytest.importorskip("syncline.train.lightgbm", exc_type=ImportError)

pytestmark = pytest.mark.processes

PARAMETERS = {
    "objective": "binary",
    "metric": "binary_logloss",
    "tree_learner": "data",
    "pre_partition": True,
    "num_leaves": 7,
    "verbose": -1,
}


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


@pytest.fixture(scope="module")
def frame() -> Any:
    """Sorted by the label, so that each rank's half has almost one class only: alone, neither could
    learn.
    """
    datasets = pytest.importorskip("sklearn.datasets")
    return datasets.load_breast_cancer(as_frame=True).frame.sort_values("target")


def loop(config: dict[str, Any]) -> dict[str, Any]:
    import lightgbm

    rows = train_lightgbm.normalize_pandas_for_lightgbm(
        train.get_dataset_shard("train").materialize().to_pandas()
    )
    matrix = lightgbm.Dataset(rows.drop(columns="target"), label=rows["target"])
    checkpoint = train.get_checkpoint()
    booster = train_lightgbm.RayTrainReportCallback.get_model(checkpoint) if checkpoint else None
    done = booster.num_trees() if booster else 0
    network = train_lightgbm.get_network_params()
    booster = lightgbm.train(
        {**PARAMETERS, **network},
        matrix,
        config["rounds"] - done,
        valid_sets=[matrix],
        valid_names=["train"],
        init_model=booster,
        callbacks=[
            train_lightgbm.RayTrainReportCallback(
                metrics={"loss": "train-binary_logloss"}, frequency=4
            )
        ],
    )
    return {"trees": booster.num_trees(), "started_with": done, "network": network}


def fit(storage: Path, frame: Any, rounds: int) -> Any:
    return train_lightgbm.LightGBMTrainer(
        loop,
        train_loop_config={"rounds": rounds},
        datasets={"train": data.from_pandas(frame)},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="run", storage_path=str(storage)),
    ).fit()


@pytest.mark.long
def test_two_workers_train_one_model_of_all_rows_and_run_resumes(
    tmp_path: Path, frame: Any
) -> None:
    first = fit(tmp_path, frame, rounds=6)
    network = first.return_value["network"]
    assert network["num_machines"] == 2
    assert f"127.0.0.1:{network['local_listen_port']}" == network["machines"].split(",")[0]
    losses = [report["metrics"]["loss"] for report in first.reports]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 6
    assert len(first.best_checkpoints) == 2  # after round 4, and the last one

    second = fit(tmp_path, frame, rounds=9)
    assert second.return_value["started_with"] == 6
    assert second.return_value["trees"] == 9
    booster = train_lightgbm.RayTrainReportCallback.get_model(second.checkpoint)
    assert ((booster.predict(frame.drop(columns="target")) > 0.5) == frame["target"]).mean() > 0.95
