"""Trainers as trials: what a step reports, what a checkpoint brings back, what a trial reserves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import syncline
from syncline.tune.execution.placement_groups import Gang
from syncline.util.sgd.torch import BaseTorchTrainable, TorchTrainer, TrainingOperator


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


class Line(TrainingOperator):
    """Learns a constant."""

    def setup(self, config: dict[str, Any]) -> None:
        model = nn.Linear(1, 1)
        self.register(
            models=model,
            optimizers=torch.optim.SGD(model.parameters(), lr=config["lr"]),
            criterion=nn.MSELoss(),
        )
        data = TensorDataset(torch.ones(4, 1), torch.ones(4, 1))
        self.register_data(
            train_loader=DataLoader(data, batch_size=2),
            validation_loader=DataLoader(data, batch_size=2),
        )


def test_step_is_an_epoch_and_a_validation_and_checkpoints_carry_the_trainer(
    tmp_path: Path,
) -> None:
    cls = TorchTrainer.as_trainable(
        training_operator_cls=Line, use_gpu=False, config={"lr": 0.1, "kept": 1}
    )
    assert issubclass(cls, BaseTorchTrainable)
    trial = cls({"lr": 0.01})
    assert isinstance(trial.trainer, TorchTrainer)
    assert trial.trainer.get_local_operator().config == {"lr": 0.01, "kept": 1}
    result = trial.train()
    assert (result["epoch"], result["training_iteration"]) == (1, 1)
    assert result["val_loss"] < result["train_loss"]
    saved = trial.save(str(tmp_path))
    other = cls({"lr": 0.01})
    other.restore(saved)
    assert isinstance(other.trainer, TorchTrainer)
    assert torch.equal(other.trainer.get_model().weight, trial.trainer.get_model().weight)
    assert other.train()["epoch"] == 2
    trial.stop()
    with pytest.raises(RuntimeError, match="shut down"):
        trial.trainer.train()


def test_programs_put_a_step_of_their_own_in_its_place() -> None:
    def step(trainer: TorchTrainer, info: dict[str, Any]) -> dict[str, Any]:
        trainer.train()
        return {**trainer.train(), **info}

    trial = TorchTrainer.as_trainable(
        override_tune_step=step, training_operator_cls=Line, use_gpu=False
    )({"lr": 0.1})
    assert [
        (result["epoch"], result["iteration"]) for result in (trial.train(), trial.train())
    ] == [(2, 0), (4, 1)]


def test_trial_reserves_a_bundle_for_each_worker() -> None:
    cls = TorchTrainer.as_trainable(
        training_operator_cls=Line, num_workers=3, num_cpus_per_worker=2, use_gpu=True
    )
    assert cls.default_resource_request({}) == Gang([{"CPU": 2, "GPU": 1}] * 3)
