"""Hugging Face Accelerate on real workers: nothing of it is wrapped, so what is tested is what a
training function finds around it.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import train
from syncline.train.torch import TorchTrainer, prepare_data_loader

pytestmark = [
    pytest.mark.long,
    pytest.mark.processes,
    pytest.mark.skipif(find_spec("accelerate") is None, reason="accelerate is not installed"),
]

EPOCHS, BATCHES_PER_EPOCH, ACCUMULATED = 2, 8, 2


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    import_module("accelerate")  # workers get what their program has imported
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


def loop(config: dict[str, Any]) -> dict[str, Any]:
    import accelerate
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(gradient_accumulation_steps=ACCUMULATED)
    facts: dict[str, Any] = {
        "processes": accelerator.num_processes,
        "ranks": accelerator.gather(torch.tensor([accelerator.process_index])).tolist(),
        "device": str(accelerator.device),
        "share": len(accelerator.prepare(DataLoader(torch.arange(64), batch_size=4))),
    }
    model: Any = torch.nn.Sequential(
        torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)
    )
    numbers = torch.arange(64 * 4).reshape(64, 4) / 256
    loader = prepare_data_loader(
        DataLoader(TensorDataset(numbers[:, :3], numbers[:, 3:]), batch_size=4, shuffle=True)
    )
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.01))
    facts["wrapped"] = type(model).__name__
    step = 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            accelerator.load_state(directory)
            step = int(Path(directory, "step").read_text())
    while step < EPOCHS * BATCHES_PER_EPOCH:
        for x, y in loader:
            kill(config, step)
            with accelerator.accumulate(model):
                accelerator.backward((model(x) - y).square().mean())
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            if step % 4 == 0:
                with tempfile.TemporaryDirectory() as directory:
                    accelerator.save_state(directory)
                    Path(directory, "step").write_text(str(step))
                    train.report(
                        {"step": step}, checkpoint=train.Checkpoint.from_directory(directory)
                    )
    facts["weights"] = [
        value for parameter in model.parameters() for value in parameter.detach().flatten().tolist()
    ]
    return facts


def kill(config: dict[str, Any], step: int) -> None:
    done = Path(config["killed"])
    if (
        step == config["kill_at"]
        and train.get_context().get_world_rank() == 1
        and not done.exists()
    ):
        train.get_checkpoint()  # returns after the commit, so the next attempt resumes here
        done.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def fit(directory: Path, name: str, *, kill_at: int | None) -> train.Result:
    return TorchTrainer(
        loop,
        train_loop_config={"kill_at": kill_at, "killed": str(directory / f"{name}-killed")},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name=name,
            storage_path=str(directory),
            failure_config=train.FailureConfig(max_failures=1),
        ),
    ).fit()


def test_accelerator_trains_on_all_workers_and_resumes_exactly_after_kill(tmp_path: Path) -> None:
    undisturbed = fit(tmp_path, "undisturbed", kill_at=None)
    facts = dict(undisturbed.return_value)
    weights = facts.pop("weights")
    assert facts == {
        "processes": 2,
        "ranks": [0, 1],
        "device": "cpu",
        "share": 8,
        "wrapped": "DistributedDataParallel",
    }
    killed = fit(
        tmp_path, "killed", kill_at=BATCHES_PER_EPOCH + 6
    )  # two batches after a report in the second epoch
    assert (tmp_path / "killed-killed").exists()
    assert killed.return_value["weights"] == weights
    assert killed.checkpoint is not None
    assert {"random_states_0.pkl", "random_states_1.pkl"} <= set(os.listdir(killed.checkpoint.path))
