"""A trainer with two worker processes: equal shares and replicas, deaths at every moment, errors,
what is left.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import syncline
from syncline import data
from syncline.testing import eventually
from syncline.train import TrainingFailedError
from syncline.util.sgd.torch import TorchTrainer, TrainingOperator

pytestmark = pytest.mark.processes

ROWS = 32
Make = Callable[..., TorchTrainer]


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


class Fragile(TrainingOperator):
    """Dropout, batch normalisation, momentum, a shuffled loader; rank 1 dies, or fails, at moments
    of `config`.
    """

    def setup(self, config: dict[str, Any]) -> None:
        torch.manual_seed(self.world_rank)
        model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        self.register(
            models=model,
            optimizers=optimizer,
            criterion=nn.MSELoss(),
            ddp_args={"bucket_cap_mb": 1},
        )
        features = torch.arange(ROWS * 2.0).view(ROWS, 2) / ROWS
        pairs = TensorDataset(features, features.sum(1, keepdim=True))
        self.register_data(
            train_loader=DataLoader(pairs, batch_size=4, shuffle=True),
            validation_loader=DataLoader(pairs, batch_size=4),
        )

    def train_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
        self.reach(f"train {self.global_step}")
        return super().train_batch(batch, batch_info)

    def validate_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
        self.reach("validate")
        return super().validate_batch(batch, batch_info)

    def reach(self, moment: str) -> None:
        if self.world_rank != 1:
            return
        if self.config.get("fails") == moment:
            raise ValueError("a sentence of the program's")
        for number in range(self.config.get("deaths", {}).get(moment, 0)):
            try:
                Path(self.config["folder"], f"{moment} {number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes trainers, which end with the test."""
    made: list[TorchTrainer] = []

    def make(**arguments: Any) -> TorchTrainer:
        for trainer in made:
            trainer.shutdown()
        made.append(
            TorchTrainer(training_operator_cls=Fragile, num_workers=2, use_gpu=False, **arguments)
        )
        return made[-1]

    yield make
    for trainer in made:
        trainer.shutdown(force=True)


def trained(make: Make, num_steps: int | None, **config: Any) -> list[Any]:
    """Weights and running statistics after three epochs, and the last validation."""
    trainer = make(config=config)
    for _ in range(3):
        trainer.train(num_steps)
        validation = trainer.validate()
    state = trainer.state_dict()
    return [*state["models"][0].values(), torch.tensor(validation["val_loss"])]


@pytest.mark.long
@pytest.mark.parametrize("num_steps", [None, 3], ids=["whole", "limited"])
def test_deaths_change_no_weight(make: Make, num_steps: int | None, tmp_path: Path) -> None:
    undisturbed = trained(make, num_steps)
    disturbed = trained(
        make, num_steps, deaths={"train 0": 1, "train 5": 2, "validate": 1}, folder=str(tmp_path)
    )
    assert len(list(tmp_path.iterdir())) == 4, "too few died"
    for ours, theirs in zip(disturbed, undisturbed, strict=True):
        assert torch.equal(ours, theirs)


def killed(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_workers_that_die_between_epochs_are_replaced(make: Make) -> None:
    trainer = make()
    pids = trainer.apply_all_workers(os.getpid)
    trainer.train()
    weight = trainer.get_model()[0].weight
    killed(pids)
    trainer.validate()
    assert torch.equal(trainer.get_model()[0].weight, weight)
    assert trainer.train()["epoch"] == 2


def test_too_many_deaths_are_an_error_after_which_the_trainer_goes_on(
    make: Make, tmp_path: Path
) -> None:
    trainer = make(config={"deaths": {"train 5": 3}, "folder": str(tmp_path)})
    assert trainer.train()["epoch"] == 1
    with pytest.raises(
        TrainingFailedError,
        match=r"Rank 1 died during the epoch, tried 2 times: .*SIGKILL(.|\n)*after epoch 1\.",
    ):
        trainer.train(max_retries=1)
    assert trainer.train(max_retries=1)["epoch"] == 2


def test_error_says_that_changes_after_the_snapshot_are_lost(make: Make) -> None:
    trainer = make()
    trainer.train()
    trainer.train(max_retries=0)
    killed(trainer.apply_all_workers(os.getpid))
    with pytest.raises(TrainingFailedError, match="after epoch 1, and later changes are lost"):
        trainer.validate()
    assert trainer.train()["epoch"] == 2


def test_error_of_the_operator_comes_out_as_it_is_and_the_epoch_counts_for_nothing(
    make: Make,
) -> None:
    trainer = make(config={"fails": "train 5"})
    trainer.train()
    weight = trainer.get_model()[0].weight
    with pytest.raises(ValueError, match="a sentence of the program's"):
        trainer.train()
    assert torch.equal(trainer.get_model()[0].weight, weight)


def test_ranks_share_the_data_and_keep_equal_replicas(make: Make) -> None:
    trainer = make()
    result = trainer.train()
    assert (result["num_samples"], result["batch_count"]) == (ROWS, ROWS // 2 // 4)
    assert [each["num_samples"] for each in trainer.validate(reduce_results=False)] == [
        ROWS // 2
    ] * 2
    ranks = trainer.apply_all_operators(
        lambda op: (op.world_rank, op.world_size, op.local_rank, op.is_distributed, type(op.model))
    )
    assert ranks == [
        (0, 2, 0, True, DistributedDataParallel),
        (1, 2, 1, True, DistributedDataParallel),
    ]
    first, second = trainer.apply_all_operators(
        lambda op: [each.detach() for each in op.model.parameters()]
    )
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(first, second, strict=True))
    rows = [{"x": [float(number), 0.0], "y": [1.0]} for number in range(16)]
    result = trainer.train(dataset=data.from_items(rows))
    assert (result["epoch"], result["num_samples"], result["batch_count"]) == (2, 16, 1)
    with pytest.raises(RuntimeError, match="in other processes"):
        trainer.get_local_operator()


def test_state_is_loaded_into_every_worker(make: Make) -> None:
    trainer = make()
    trainer.train()
    state = trainer.state_dict()
    trainer.train()
    trainer.load_state_dict(state)
    weights = trainer.apply_all_operators(lambda op: op.original_models[0][0].weight.detach())
    assert all(torch.equal(weight, state["models"][0]["0.weight"]) for weight in weights)
    assert trainer.train()["epoch"] == 2


def test_every_end_gives_the_resources_back() -> None:
    for end in ("shutdown", "force", "drop"):
        trainer = TorchTrainer(training_operator_cls=Fragile, num_workers=2, use_gpu=False)
        pids = trainer.apply_all_workers(os.getpid)
        if end != "drop":
            trainer.shutdown(force=end == "force")
        del trainer
        eventually(
            lambda: syncline.available_resources().get("CPU") == 2, what=f"CPUs free after {end}"
        )
        eventually(
            lambda pids=pids: (
                not any(  # type: ignore[misc]
                    Path(f"/proc/{pid}").exists() for pid in pids
                )
            ),
            what="processes gone",
        )


def test_setup_that_fails_is_an_error_of_the_constructor() -> None:
    class Broken(TrainingOperator):
        def setup(self, config: dict[str, Any]) -> None:
            raise KeyError("no such file")

    with pytest.raises(KeyError, match="no such file"):
        TorchTrainer(training_operator_cls=Broken, num_workers=2, use_gpu=False)
    eventually(lambda: syncline.available_resources().get("CPU") == 2)
