"""Lightning on real workers: a run that is killed in the middle of an epoch ends with the weights
of one that is not.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import train
from syncline.train.torch import TorchTrainer, prepare_data_loader

INSTALLED = (
    spec := find_spec("lightning")
) is not None and spec.origin is not None  # this folder has the name, too
pytestmark = [
    pytest.mark.long,
    pytest.mark.processes,
    pytest.mark.skipif(not INSTALLED, reason="lightning is not installed"),
]

EPOCHS, STEPS_PER_EPOCH, REPORT_EVERY = 3, 8, 3


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    import_module("lightning.pytorch")  # workers get what their program has imported

    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


def loop(config: dict[str, Any]) -> list[float]:
    """As programs for Ray are written: nothing in it speaks of data that resume. Dropout and
    shuffling make every batch count.
    """
    import lightning.pytorch as pl
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from syncline.train.lightning import (
        RayDDPStrategy,
        RayLightningEnvironment,
        RayTrainReportCallback,
        prepare_trainer,
    )

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)
            )

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            x, y = (
                batch if config["reads"] == "loader" else (batch["x"].float(), batch["y"].float())
            )
            loss = (self.layers(x) - y.reshape(-1, 1)).square().mean()
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            torch.rand(())  # moves the generator that dropout draws from

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    class Kill(pl.Callback):
        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            done = Path(config["killed"])
            if (
                trainer.global_step == config["kill_at"]
                and train.get_context().get_world_rank() == 1
                and not done.exists()
            ):
                if config["snapshots"]:
                    done.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                train.get_checkpoint()  # returns after the commit, so the next attempt resumes here
                done.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    class Count(pl.Callback):
        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            if config["snapshots"]:
                rank = train.get_context().get_world_rank()
                with Path(f"{config['killed']}-steps-{rank}").open("a") as steps:
                    steps.write(f"{trainer.global_step}\n")

    torch.manual_seed(0)
    if config["reads"] == "loader":
        numbers = torch.arange(64 * 4).reshape(64, 4) / 256
        batches: Any = DataLoader(
            TensorDataset(numbers[:, :3], numbers[:, 3]), batch_size=4, shuffle=True
        )
    else:
        batches = train.get_dataset_shard("train").iter_torch_batches(batch_size=4)
    checks = prepare_data_loader(DataLoader(torch.ones(32), batch_size=4))
    model = Model()
    trainer = prepare_trainer(
        pl.Trainer(
            max_epochs=EPOCHS,
            accelerator="cpu",
            strategy=RayDDPStrategy(),
            plugins=[RayLightningEnvironment()],
            callbacks=[Kill(), Count(), RayTrainReportCallback(every_n_train_steps=REPORT_EVERY)],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    )
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        trainer.fit(model, batches, checks)
    else:
        with checkpoint.as_directory() as directory:
            trainer.fit(
                model,
                batches,
                checks,
                ckpt_path=os.path.join(directory, RayTrainReportCallback.CHECKPOINT_NAME),
            )
    return [
        value for parameter in model.parameters() for value in parameter.detach().flatten().tolist()
    ]


def fit(
    directory: Path, name: str, *, reads: str, kill_at: int | None, snapshots: bool = False
) -> train.Result:
    rows = [{"x": [i / 64, i / 32, 1.0], "y": i / 16} for i in range(64)]
    return TorchTrainer(
        loop,
        train_loop_config={
            "reads": reads,
            "kill_at": kill_at,
            "snapshots": snapshots,
            "killed": str(directory / f"{name}-killed"),
        },
        datasets={"train": syncline.data.from_items(rows).random_shuffle(seed=1)}
        if reads == "dataset"
        else None,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name=name,
            storage_path=str(directory),
            failure_config=train.FailureConfig(max_failures=1),
            snapshot=train.SnapshotConfig() if snapshots else None,
        ),
    ).fit()


@pytest.mark.parametrize(
    ("reads", "kill_at"),
    [
        ("loader", STEPS_PER_EPOCH + 5),  # two steps after a report in the second epoch
        (
            "loader",
            2 * STEPS_PER_EPOCH + 1,
        ),  # the last report came with the end of the second epoch
        ("dataset", STEPS_PER_EPOCH + 5),
    ],
)
def test_killed_run_ends_with_same_weights(tmp_path: Path, reads: str, kill_at: int) -> None:
    undisturbed = fit(tmp_path, "undisturbed", reads=reads, kill_at=None)
    killed = fit(tmp_path, "killed", reads=reads, kill_at=kill_at)
    assert (tmp_path / "killed-killed").exists()
    assert killed.return_value == undisturbed.return_value
    for result in (undisturbed, killed):
        assert result.metrics is not None
        assert (result.metrics["epoch"], result.metrics["step"]) == (
            EPOCHS - 1,
            EPOCHS * STEPS_PER_EPOCH,
        )
        assert result.checkpoint is not None
        assert (Path(result.checkpoint.path) / "checkpoint.ckpt").is_file()


@pytest.mark.parametrize(
    ("reads", "kill_at"),
    [
        ("loader", 2),  # before the first report
        ("loader", STEPS_PER_EPOCH + 5),  # two steps after a report
        ("loader", 2 * STEPS_PER_EPOCH),  # the snapshot is of the end of an epoch
        ("dataset", STEPS_PER_EPOCH + 5),
    ],
)
def test_a_killed_rank_repeats_at_most_one_step_with_snapshots(
    tmp_path: Path, reads: str, kill_at: int
) -> None:
    undisturbed = fit(tmp_path, "undisturbed", reads=reads, kill_at=None, snapshots=True)
    killed = fit(tmp_path, "killed", reads=reads, kill_at=kill_at, snapshots=True)
    assert (tmp_path / "killed-killed").exists()
    assert killed.return_value == undisturbed.return_value
    for rank in range(2):
        lines = (tmp_path / f"killed-killed-steps-{rank}").read_text().split()
        assert len(lines) - len(set(lines)) <= 1
        assert set(lines) == set(map(str, range(EPOCHS * STEPS_PER_EPOCH)))
    assert killed.metrics is not None
    assert undisturbed.metrics is not None
    assert killed.metrics["step"] == undisturbed.metrics["step"]
