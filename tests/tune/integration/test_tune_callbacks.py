"""Reports of framework callbacks in trials, without processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import syncline
from syncline import train
from syncline.testing.waiting import eventually
from syncline.train.checkpoint import Checkpoint
from syncline.train.session import current_session
from syncline.train.torch import TorchTrainer
from syncline.tune.integration.ray_train import CHECKPOINT_PATH_KEY, TuneReportCallback
from syncline.tune.trainable import wrap_function
from syncline.tune.trainable.session import Reported


def reports(function: Any) -> list[tuple[dict[str, Any], list[str]]]:
    """Return each result of a function with the file names of its checkpoint."""
    trainable = wrap_function(function)({})
    collected: list[tuple[dict[str, Any], list[str]]] = []
    while True:
        result = trainable.train()
        if not isinstance(trainable.message, Reported):
            return collected
        checkpoint = trainable.message.checkpoint
        collected.append(
            (result, sorted(os.listdir(checkpoint.path)) if checkpoint is not None else [])
        )


class TestTrainers:
    """A trainer inside a trial."""

    @pytest.fixture
    def engine(self) -> Iterator[None]:
        syncline.init(local_mode=True)
        yield
        syncline.shutdown()

    def test_the_trial_reports_what_the_workers_do_and_refers_to_their_checkpoints(
        self, engine: None, tmp_path: Path
    ) -> None:
        def loop(config: dict[str, Any]) -> None:
            for epoch in range(2):
                (tmp_path / "mine").mkdir(exist_ok=True)
                (tmp_path / "mine" / "epoch").write_text(str(epoch))
                train.report({"epoch": epoch}, Checkpoint(tmp_path / "mine") if epoch else None)

        def function(config: dict[str, Any]) -> dict[str, Any]:
            run_config = train.RunConfig(
                name="inner", storage_path=str(tmp_path / "runs"), callbacks=[TuneReportCallback()]
            )
            trainer = TorchTrainer(
                loop,
                train_loop_config={},
                scaling_config=train.ScalingConfig(num_workers=1),
                run_config=run_config,
            )
            return {"last": trainer.fit().metrics["epoch"]}

        trainable = wrap_function(function)({})
        assert trainable.train()["epoch"] == 0
        assert trainable.session.latest is None
        result = trainable.train()
        checkpoint = trainable.session.latest
        assert checkpoint is not None
        assert isinstance(trainable.message, Reported)
        assert trainable.message.in_place
        assert Path(checkpoint.path).is_relative_to(tmp_path / "runs" / "inner")
        assert result[CHECKPOINT_PATH_KEY] == checkpoint.path
        assert Path(checkpoint.path, "epoch").read_text() == "1"
        assert trainable.train()["last"] == 1  # the trial's own session is back
        assert current_session() is None

    def test_a_trial_that_is_stopped_meanwhile_ends_the_run_inside(
        self, engine: None, tmp_path: Path
    ) -> None:
        ended = threading.Event()

        def loop(config: dict[str, Any]) -> None:
            train.report({"epoch": 0})

        def function(config: dict[str, Any]) -> None:
            run_config = train.RunConfig(
                name="inner", storage_path=str(tmp_path), callbacks=[TuneReportCallback()]
            )
            try:
                TorchTrainer(loop, train_loop_config={}, run_config=run_config).fit()
            finally:
                ended.set()

        trainable = wrap_function(function)({})
        assert trainable.train()["epoch"] == 0
        trainable.stop()
        assert ended.wait(60)
        eventually(lambda: current_session() is None)

    def test_outside_a_trial_it_is_refused(self) -> None:
        with pytest.raises(
            RuntimeError, match=r"TuneReportCallback\(\) was created outside a trial"
        ):
            TuneReportCallback()


class TestXGBoost:
    """Boosting rounds as iterations."""

    def booster(self, config: dict[str, Any], *callbacks: Any, rounds: int = 2) -> None:
        xgboost = pytest.importorskip("xgboost")
        rows = np.arange(40.0).reshape(-1, 1)
        matrix = xgboost.DMatrix(rows, label=rows[:, 0])
        parameters = {"objective": "reg:squarederror", "nthread": 1}
        xgboost.train(
            parameters,
            matrix,
            rounds,
            evals=[(matrix, "train")],
            verbose_eval=False,
            callbacks=list(callbacks),
        )

    def test_metrics_and_models_are_reported(self) -> None:
        module = pytest.importorskip("syncline.tune.integration.xgboost", exc_type=ImportError)
        callback = module.TuneReportCheckpointCallback({"error": "train-rmse"}, frequency=1)
        found = reports(lambda config: self.booster(config, callback))
        assert [files for _, files in found] == [["model.ubj"]] * 2
        assert found[0][0]["error"] > found[1][0]["error"]

    def test_the_older_callback_saves_nothing(self) -> None:
        module = pytest.importorskip("syncline.tune.integration.xgboost", exc_type=ImportError)
        found = reports(lambda config: self.booster(config, module.TuneReportCallback()))
        assert [files for _, files in found] == [[], []]
        assert "train-rmse" in found[0][0]

    def test_cross_validation_reports_what_the_folds_are_on_average(self) -> None:
        module = pytest.importorskip("syncline.tune.integration.xgboost", exc_type=ImportError)
        xgboost = pytest.importorskip("xgboost")
        rows = np.arange(40.0).reshape(-1, 1)

        def function(config: dict[str, Any]) -> None:
            average = module.TuneReportCheckpointCallback(
                results_postprocessing_fn=lambda values: {
                    key: float(np.mean(value)) for key, value in values.items()
                }
            )
            xgboost.cv(
                {"nthread": 1},
                xgboost.DMatrix(rows, label=rows[:, 0]),
                2,
                nfold=2,
                callbacks=[average],
            )

        found = reports(function)
        assert [files for _, files in found] == [[], []]
        assert all(isinstance(result["test-rmse"], float) for result, _ in found)


class TestLightGBM:
    """Boosting rounds as iterations."""

    def test_metrics_and_the_last_model_are_reported(self) -> None:
        module = pytest.importorskip("syncline.tune.integration.lightgbm", exc_type=ImportError)
        lightgbm = pytest.importorskip("lightgbm")
        rows = np.arange(60.0).reshape(-1, 1)
        data = lightgbm.Dataset(rows, rows[:, 0])

        def function(config: dict[str, Any]) -> None:
            parameters = {"verbosity": -1, "num_threads": 1, "min_data_in_leaf": 2}
            for kind in (module.TuneReportCheckpointCallback, module.TuneReportCallback):
                lightgbm.train(
                    parameters,
                    data,
                    2,
                    valid_sets=[data],
                    valid_names=["train"],
                    callbacks=[kind()],
                )

        found = reports(function)
        assert [files for _, files in found] == [[], ["model.txt"], [], []]
        assert "train-l2" in found[0][0]


class TestLightning:
    """Lightning's hooks."""

    def fit(self, *callbacks: Any, **options: Any) -> None:
        pl = pytest.importorskip("lightning.pytorch")

        class Line(pl.LightningModule):  # type: ignore[name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.line = torch.nn.Linear(1, 1)

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                loss = self.line(batch).square().mean()
                self.log("loss", loss)
                return loss

            def validation_step(self, batch: Any, batch_idx: int) -> None:
                self.log("val_loss", self.line(batch).square().mean())

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.01)

        quiet = {
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": False,
            "logger": False,
        }
        loader = torch.utils.data.DataLoader(torch.ones(4, 1), batch_size=2)
        pl.Trainer(
            accelerator="cpu", callbacks=list(callbacks), max_epochs=2, **quiet, **options
        ).fit(Line(), loader, loader)

    @pytest.fixture
    def callbacks(self) -> Any:
        pytest.importorskip("lightning.pytorch")
        return pytest.importorskip(
            "syncline.tune.integration.pytorch_lightning", exc_type=ImportError
        )

    def test_metrics_and_checkpoints_are_reported_after_each_validation(
        self, callbacks: Any
    ) -> None:
        callback = callbacks.TuneReportCheckpointCallback(
            {"validation": "val_loss"}, filename="trainer.ckpt"
        )
        found = reports(lambda config: self.fit(callback))
        assert [files for _, files in found] == [
            ["trainer.ckpt"]
        ] * 2  # the sanity check is no validation
        assert all(isinstance(result["validation"], float) for result, _ in found)

    def test_hooks_can_be_chosen_and_checkpoints_left_out(self, callbacks: Any) -> None:
        found = reports(
            lambda config: self.fit(
                callbacks.TuneReportCallback(on=["train_batch_end", "train_end"])
            )
        )
        assert [files for _, files in found] == [[]] * 5
        assert {"loss", "val_loss"} <= set(found[-1][0])

    def test_a_metric_that_is_not_logged_yet_is_left_out_with_a_warning(
        self, callbacks: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        found = reports(
            lambda config: self.fit(
                callbacks.TuneReportCallback(["loss", "val_loss"], on="train_batch_end")
            )
        )
        assert ["val_loss" in result for result, _ in found] == [False, False, True, True]
        assert "Metrics val_loss are not reported" in caplog.text

    def test_a_hook_that_does_not_exist_is_refused(self, callbacks: Any) -> None:
        with pytest.raises(ValueError, match="Lightning has no hook epoch_over"):
            callbacks.TuneReportCallback(on="epoch_over")
