"""A `transformers.Trainer` on real workers: a run that is killed in the middle of an epoch ends
with the weights of one that is not.
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
from syncline.train.torch import TorchTrainer

MISSING = [name for name in ("transformers", "accelerate") if find_spec(name) is None]
pytestmark = [
    pytest.mark.long,
    pytest.mark.processes,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}"),
]

STEPS = 12  # three passes over the loader's samples, two and two fifths over the dataset's


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    import_module("transformers.trainer")  # workers get what their program has imported
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


def rows(count: int) -> list[dict[str, Any]]:
    return [{"input_ids": [i % 50, 3 * i % 50, 7], "labels": i % 2} for i in range(count)]


def loop(config: dict[str, Any]) -> list[float]:
    import torch
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    from syncline.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer

    class Kill(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            done = Path(config["killed"])
            if config["snapshots"]:
                rank = train.get_context().get_world_rank()
                with Path(f"{done}-steps-{rank}").open("a") as steps:
                    steps.write(f"{state.global_step}\n")
            if (
                state.global_step == config["kill_at"]
                and train.get_context().get_world_rank() == 1
                and not done.exists()
            ):
                if not config["snapshots"]:
                    # Returns after the commit, so the next attempt resumes here.
                    train.get_checkpoint()
                done.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "max_position_embeddings": 8,
    }
    model = BertForSequenceClassification(BertConfig(vocab_size=50, **sizes))
    if config["reads"] == "loader":
        data: Any = [{name: torch.tensor(value) for name, value in row.items()} for row in rows(32)]
    else:
        data = train.get_dataset_shard("train").iter_torch_batches(batch_size=4)
    arguments = TrainingArguments(
        output_dir=config["output"],
        max_steps=STEPS,
        per_device_train_batch_size=4,
        save_steps=3,
        save_total_limit=1,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = prepare_trainer(
        Trainer(
            model=model,
            args=arguments,
            train_dataset=data,
            callbacks=[Kill(), RayTrainReportCallback()],
        )
    )
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        trainer.train()
    else:
        with checkpoint.as_directory() as directory:
            trainer.train(
                resume_from_checkpoint=os.path.join(
                    directory, RayTrainReportCallback.CHECKPOINT_NAME
                )
            )
    assert type(trainer.model_wrapped).__name__ == "DistributedDataParallel"
    return [
        value for parameter in model.parameters() for value in parameter.detach().flatten().tolist()
    ]


def fit(
    directory: Path, name: str, *, reads: str, kill_at: int | None, snapshots: bool = False
) -> train.Result:
    places = {
        "output": str(directory / f"{name}-output"),
        "killed": str(directory / f"{name}-killed"),
    }
    return TorchTrainer(
        loop,
        train_loop_config={"reads": reads, "kill_at": kill_at, "snapshots": snapshots, **places},
        datasets={"train": syncline.data.from_items(rows(40)).random_shuffle(seed=1)}
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


@pytest.mark.parametrize("reads", ["loader", "dataset"])
def test_run_killed_in_middle_of_epoch_ends_with_same_weights(tmp_path: Path, reads: str) -> None:
    undisturbed = fit(tmp_path, "undisturbed", reads=reads, kill_at=None)
    killed = fit(tmp_path, "killed", reads=reads, kill_at=8)  # two steps after a report
    assert (tmp_path / "killed-killed").exists()
    assert killed.return_value == undisturbed.return_value
    for result in (undisturbed, killed):
        assert result.metrics is not None
        assert result.metrics["step"] == STEPS
        assert result.checkpoint is not None
        saved = set(os.listdir(os.path.join(result.checkpoint.path, "checkpoint")))
        assert {
            "model.safetensors",
            "optimizer.pt",
            "trainer_state.json",
            "rng_state_0.pth",
            "rng_state_1.pth",
        } <= saved
    assert not list((tmp_path / "killed-output").glob(".syncline-*"))


@pytest.mark.parametrize(
    ("reads", "kill_at"),
    [
        ("loader", 2),  # before the first checkpoint
        ("loader", 8),  # the snapshot is of the end of an epoch
        ("loader", 11),  # two steps after a checkpoint, in the middle of an epoch
        ("dataset", 8),
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
        assert set(lines) == set(map(str, range(STEPS)))
    assert killed.metrics is not None
    assert killed.metrics["step"] == STEPS
