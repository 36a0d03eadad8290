"""A trainer with one worker in the program's own process: operators, creators, results, state,
arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import syncline
from syncline import data
from syncline.util.sgd import TorchTrainer
from syncline.util.sgd.torch import CreatorOperator, TrainingOperator

ROWS = 24


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def loader(rows: int = ROWS) -> DataLoader[Any]:
    features = torch.arange(rows * 2.0).view(rows, 2) / (rows * 2)
    return DataLoader(TensorDataset(features, (features[:, 0] > 0.5).long()), batch_size=5)


class Classifier(TrainingOperator):
    """Two classes, nothing random."""

    def setup(self, config: dict[str, Any]) -> None:
        model = nn.Linear(2, 2)
        nn.init.zeros_(model.weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=config.get("lr", 0.5), momentum=0.9)
        scheduler = (
            torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            if self.scheduler_step_freq
            else None
        )
        self.register(
            models=model,
            optimizers=optimizer,
            criterion=nn.CrossEntropyLoss(),
            schedulers=scheduler,
        )
        self.register_data(train_loader=loader(), validation_loader=loader(10))

    def state_dict(self) -> dict[str, Any]:
        return {"note": self.config.get("note")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.loaded = state_dict


def make(cls: type[TrainingOperator] = Classifier, **arguments: Any) -> TorchTrainer:
    return TorchTrainer(training_operator_cls=cls, use_gpu=False, **arguments)


def learning_rate(trainer: TorchTrainer) -> float:
    return float(trainer.get_local_operator().optimizer.param_groups[0]["lr"])


def test_epochs_learn_and_say_on_how_much() -> None:
    trainer = make()
    results = [trainer.train() for _ in range(3)]
    assert [result["epoch"] for result in results] == [1, 2, 3]
    assert (results[0]["num_samples"], results[0]["batch_count"]) == (ROWS, 5)
    assert results[-1]["train_loss"] < results[0]["train_loss"]
    assert "last_train_loss" in results[0]
    validation = trainer.validate()
    assert (validation["num_samples"], validation["batch_count"]) == (10, 2)
    assert 0 <= validation["val_accuracy"] <= 1
    assert trainer.validate(num_steps=1)["num_samples"] == 5
    assert trainer.train(num_steps=2)["batch_count"] == 2
    assert trainer.train(reduce_results=False)[0]["epoch"] == 5


def test_creators_make_an_operator() -> None:
    seen: list[Any] = []

    def optimizer_creator(model: nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
        seen.append((type(model), config))
        return torch.optim.SGD(model.parameters(), lr=config["lr"])

    trainer = TorchTrainer(
        model_creator=lambda config: nn.Linear(2, 2),
        data_creator=lambda config: loader(),
        optimizer_creator=optimizer_creator,
        loss_creator=nn.CrossEntropyLoss,
        scheduler_creator=lambda optimizer, config: torch.optim.lr_scheduler.ExponentialLR(
            optimizer, 0.5
        ),
        scheduler_step_freq="epoch",
        serialize_data_creation=True,
        config={"lr": 0.4},
        use_gpu=False,
    )
    assert seen == [(nn.Linear, {"lr": 0.4})]
    assert isinstance(trainer.get_local_operator(), CreatorOperator)
    trainer.train()
    assert learning_rate(trainer) == pytest.approx(0.2)
    with pytest.raises(ValueError, match="no validation loader"):
        trainer.validate()


@pytest.mark.parametrize(("freq", "factor"), [("batch", 0.5**5), ("epoch", 0.5), ("manual", 1.0)])
def test_schedulers_step_when_the_trainer_says(freq: str, factor: float) -> None:
    trainer = make(scheduler_step_freq=freq)
    trainer.train()
    assert learning_rate(trainer) == pytest.approx(0.5 * factor)
    trainer.update_scheduler()
    assert learning_rate(trainer) == pytest.approx(0.25 * factor)


def test_scheduler_without_a_frequency_is_refused() -> None:
    class Scheduled(Classifier):
        scheduler_step_freq = "x"  # so that it registers one

    with pytest.raises(ValueError, match="scheduler_step_freq"):
        make(Scheduled)


def test_state_goes_into_another_trainer_through_a_file(tmp_path: Path) -> None:
    trainer = make(config={"note": "kept"})
    trainer.train()
    path = trainer.save(str(tmp_path / "state.pt"))
    at_save = trainer.validate()
    weight = trainer.state_dict()["models"][0]["weight"]
    trainer.train()
    assert not torch.equal(weight, trainer.state_dict()["models"][0]["weight"]), (
        "the state is no copy"
    )

    other = make()
    other.load(path)
    assert other.validate() == at_save
    assert other.get_local_operator().loaded == {"note": "kept"}  # type: ignore[attr-defined]
    assert other.train()["epoch"] == 2
    assert torch.equal(other.get_model().weight, trainer.get_model().weight), (
        "momentum or step count is missing"
    )


def test_state_of_another_operator_is_refused() -> None:
    state = make(scheduler_step_freq="epoch").state_dict()
    with pytest.raises(ValueError, match="1 schedulers, but the operator registers 0"):
        make().load_state_dict(state)


def test_operator_gets_info_and_the_step() -> None:
    class Noting(Classifier):
        def train_epoch(self, iterator: Any, info: dict[str, Any]) -> dict[str, Any]:
            self.infos: list[dict[str, Any]] = []
            return {**super().train_epoch(iterator, info), "given": info["given"]}

        def train_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
            self.infos.append(batch_info)
            return {"score": torch.tensor(float(batch_info["batch_idx"])), "num_samples": 1}

    trainer = make(Noting)
    result = trainer.train(info={"given": "x"}, profile=True)
    assert (result["given"], result["score"], result["last_score"], result["num_samples"]) == (
        "x",
        2.0,
        4.0,
        5,
    )
    assert result["profile"]["mean_train_epoch_s"] > 0
    trainer.train(num_steps=1, info={"given": "y"})
    [info] = trainer.apply_all_operators(lambda operator: operator.infos[0])  # type: ignore[attr-defined]
    assert (
        info["global_step"],
        info["batch_idx"],
        info["epoch_idx"],
        info["num_steps"],
        info["given"],
    ) == (5, 0, 1, 1, "y")
    assert trainer.apply_all_workers(lambda: 42) == [42]


def test_several_models_have_loops_of_their_own() -> None:
    class Two(TrainingOperator):
        def setup(self, config: dict[str, Any]) -> None:
            models = [nn.Linear(1, 1), nn.Linear(1, 2)]
            optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
            registered = self.register(models=models, optimizers=optimizers)
            assert registered == (models, optimizers)
            self.register_data(train_loader=[1, 2])

    with pytest.raises(RuntimeError, match="2 models and no criterion"):
        make(Two).train()

    class Trained(Two):
        def train_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
            return {"batch": batch}

    trainer = make(Trained)
    assert trainer.train()["batch"] == 1.5
    assert [model.out_features for model in trainer.get_model()] == [1, 2]
    assert len(trainer.state_dict()["optimizers"]) == 2


def test_regression_has_no_accuracy_and_mixed_precision_computes_in_bfloat16() -> None:
    class Regression(TrainingOperator):
        def setup(self, config: dict[str, Any]) -> None:
            model = nn.Linear(1, 1)
            self.register(
                models=model,
                optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
                criterion=nn.MSELoss(),
            )
            data = TensorDataset(torch.ones(4, 1), torch.ones(4, 1))
            self.register_data(train_loader=DataLoader(data), validation_loader=DataLoader(data))

        def validate_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
            with self.autocast():
                self.seen = self.model(batch[0]).dtype
            return super().validate_batch(batch, batch_info)

    trainer = make(Regression, use_fp16=True)
    assert trainer.train()["num_samples"] == 4
    assert set(trainer.validate()) == {"batch_count", "num_samples", "val_loss", "last_val_loss"}
    assert trainer.get_local_operator().seen == torch.bfloat16  # type: ignore[attr-defined]


def test_dataset_takes_the_place_of_the_loader() -> None:
    rows = [{"x": [float(i), 0.0], "label": i % 2} for i in range(10)]
    result = make(config={"batch_size": 4}).train(dataset=data.from_items(rows))
    assert (result["num_samples"], result["batch_count"]) == (10, 3)


def test_progress_bar_shows_the_epoch(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    make(use_tqdm=True).train()
    shown = capfd.readouterr().err
    assert "epoch 1" in shown
    assert "5/5" in shown
    assert "loss=" in shown


def test_hook_runs_before_the_operator_is_made() -> None:
    order: list[str] = []

    class Late(Classifier):
        def setup(self, config: dict[str, Any]) -> None:
            order.append("setup")
            super().setup(config)

    make(Late, initialization_hook=lambda: order.append("hook"))
    assert order == ["hook", "setup"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "needs `training_operator_cls`, or"),
        (
            {"training_operator_cls": Classifier, "model_creator": nn.Linear},
            ValueError,
            "excludes model_creator",
        ),
        ({"training_operator_cls": 3}, TypeError, "not a subclass"),
        (
            {"model_creator": 1, "optimizer_creator": print},
            TypeError,
            "`model_creator=1` is not callable",
        ),
        (
            {"training_operator_cls": Classifier, "scheduler_step_freq": "step"},
            ValueError,
            "use one of batch, epoch, manual",
        ),
        ({"training_operator_cls": Classifier, "use_fp16": "apex"}, ValueError, "torch.amp"),
        ({"training_operator_cls": Classifier, "num_workers": 0}, ValueError, "must be 1 or more"),
        ({"training_operator_cls": Classifier, "num_workers": 2}, ValueError, "needs 2 processes"),
        ({"training_operator_cls": Classifier, "use_gpu": "no"}, ValueError, "'auto'"),
        ({"training_operator_cls": TrainingOperator}, NotImplementedError, "define it"),
    ],
)
def test_errors_name_invalid_arguments(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        TorchTrainer(**arguments)


def test_trainer_refuses_to_train_after_shutdown() -> None:
    trainer = make()
    trainer.shutdown()
    with pytest.raises(RuntimeError, match="create a new one"):
        trainer.train()
