"""Snapshots of models whose tensors are sharded (FSDP2) or split (tensor parallelism): a rank is
killed, and the weights and the optimizer are those of an undisturbed run, bit for bit.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import train
from syncline.train.torch import TorchTrainer

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

STEPS_PER_EPOCH, EPOCHS = 8, 2
KILL_AT = 11
"""Step of the second epoch."""


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


def loop(config: dict[str, Any]) -> dict[str, Any]:
    import torch
    from torch import nn
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    from torch.utils.data import DataLoader, TensorDataset

    from syncline.train.torch import (
        enable_reproducibility,
        prepare_data_loader,
        prepare_model,
        prepare_optimizer,
    )

    enable_reproducibility(3)
    torch.set_num_threads(1)
    rank = train.get_context().get_world_rank()
    # The sizes are no multiples of two, so the shards of the ranks differ.
    net = nn.Sequential(nn.Linear(5, 7), nn.Dropout(0.2), nn.ReLU(), nn.Linear(7, 3))
    options: dict[str, Any] = {}
    if config["mode"] == "tp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

        net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
        options = {
            "mesh": init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)),
            "parallelize_plan": {"0": ColwiseParallel(), "2": RowwiseParallel()},
        }
    model = prepare_model(
        net,
        parallel_strategy="fsdp" if config["mode"] == "fsdp" else "ddp",
        parallel_strategy_kwargs=options,
    )
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    if config["prepared"]:
        optimizer = prepare_optimizer(optimizer)
    progress = {"epoch": 0, "step": 0}
    train.register_state(progress=progress)
    samples = torch.randn(2 * STEPS_PER_EPOCH * 4, 5, generator=torch.Generator().manual_seed(1))
    loader = prepare_data_loader(DataLoader(TensorDataset(samples), batch_size=4, shuffle=True))
    executed = 0
    while progress["epoch"] < EPOCHS:
        for (batch,) in loader:
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            progress["step"] += 1
            executed += 1
            killed = Path(config["killed"])
            if progress["step"] == config["kill_at"] and rank == 1 and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        progress["epoch"] += 1
    weights, state = get_state_dict(
        model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    return {
        "executed": executed,
        "weights": {name: value.tolist() for name, value in weights.items()},
        "optimizer": repr(state),
    }


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("mode", ["fsdp", "tp"])
def test_a_killed_rank_changes_no_bit(tmp_path: Path, mode: str, prepared: bool) -> None:
    def fit(name: str, kill_at: int) -> dict[str, Any]:
        result: dict[str, Any] = (
            TorchTrainer(
                loop,
                train_loop_config={
                    "mode": mode,
                    "prepared": prepared,
                    "kill_at": kill_at,
                    "killed": str(tmp_path / f"{name}-killed"),
                },
                scaling_config=train.ScalingConfig(num_workers=2),
                run_config=train.RunConfig(
                    name=name,
                    storage_path=str(tmp_path),
                    failure_config=train.FailureConfig(max_failures=1),
                    snapshot=train.SnapshotConfig(),
                ),
            )
            .fit()
            .return_value
        )
        return result

    expected = fit("undisturbed", kill_at=-1)
    found = fit("killed", kill_at=KILL_AT)
    assert (tmp_path / "killed-killed").exists()
    steps = STEPS_PER_EPOCH * EPOCHS
    assert (expected["executed"], found["executed"]) == (steps, steps - (KILL_AT - 1))
    assert found["weights"] == expected["weights"]
    assert found["optimizer"] == expected["optimizer"]
