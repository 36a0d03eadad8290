"""XGBoost with two real workers: one model of all rows, the same one when a worker was killed on
the way.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import data, train

train_xgboost = pytest.importorskip("syncline.train.xgboost", exc_type=ImportError)

pytestmark = pytest.mark.processes

ROUNDS = 9
KILLED_AFTER = 5
PARAMETERS = {"objective": "binary:logistic", "eval_metric": ["logloss", "error"], "max_depth": 3}


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
    import xgboost

    class Killer(xgboost.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            runs_the_tracker = train.get_context().get_world_rank() == 0
            if (
                config["kill"]
                and runs_the_tracker
                and not done
                and model.num_boosted_rounds() == KILLED_AFTER
            ):
                train.get_checkpoint()  # returns after the commit, so the next attempt resumes here
                os.kill(os.getpid(), signal.SIGKILL)
            return False

    rows = train.get_dataset_shard("train").materialize().to_pandas()
    matrix = xgboost.DMatrix(rows.drop(columns="target"), label=rows["target"])
    checkpoint = train.get_checkpoint()
    booster = train_xgboost.RayTrainReportCallback.get_model(checkpoint) if checkpoint else None
    done = booster.num_boosted_rounds() if booster else 0
    callbacks = [train_xgboost.RayTrainReportCallback(frequency=2), Killer()]
    evals = [(matrix, "train")]
    booster = xgboost.train(
        PARAMETERS,
        matrix,
        ROUNDS - done,
        evals=evals,
        xgb_model=booster,
        callbacks=callbacks,
        verbose_eval=False,
    )
    return {
        "model": bytes(booster.save_raw("json")),
        "started_with": done,
        "place": (xgboost.collective.get_rank(), xgboost.collective.get_world_size()),
        "threads": os.environ["OMP_NUM_THREADS"],
        "template_has_xgboost": "xgboost" in Path(f"/proc/{os.getppid()}/maps").read_text(),
    }


def fit(storage: Path, frame: Any, *, kill: bool = False) -> Any:
    return train_xgboost.XGBoostTrainer(
        loop,
        train_loop_config={"kill": kill},
        datasets={"train": data.from_pandas(frame)},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="run",
            storage_path=str(storage),
            failure_config=train.FailureConfig(max_failures=int(kill)),
        ),
    ).fit()


@pytest.fixture(scope="module")
def undisturbed(frame: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return fit(tmp_path_factory.mktemp("undisturbed"), frame)


def test_two_workers_train_one_model_of_all_rows(undisturbed: Any, frame: Any) -> None:
    import xgboost

    booster = train_xgboost.RayTrainReportCallback.get_model(undisturbed.checkpoint)
    assert bytes(booster.save_raw("json")) == undisturbed.return_value["model"]
    predictions = booster.predict(xgboost.DMatrix(frame.drop(columns="target"))) > 0.5
    assert (predictions == frame["target"]).mean() > 0.97
    assert undisturbed.return_value["place"] == (0, 2)


def test_every_round_is_reported_and_every_second_model(undisturbed: Any) -> None:
    losses = [report["metrics"]["train-logloss"] for report in undisturbed.reports]
    assert len(losses) == ROUNDS + 1  # the last model comes with a report of its own
    assert losses[:ROUNDS] == sorted(losses[:ROUNDS], reverse=True)
    assert len(undisturbed.best_checkpoints) == ROUNDS // 2 + 1


def test_workers_share_cores_and_are_forked_from_process_without_xgboost(undisturbed: Any) -> None:
    assert int(undisturbed.return_value["threads"]) >= 1
    assert undisturbed.return_value["template_has_xgboost"] is False


@pytest.mark.long
def test_killed_worker_does_not_change_model(undisturbed: Any, frame: Any, tmp_path: Path) -> None:
    killed = fit(tmp_path, frame, kill=True)
    assert killed.return_value["started_with"] == KILLED_AFTER - 1
    assert killed.return_value["model"] == undisturbed.return_value["model"]
