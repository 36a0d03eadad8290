"""A training that others kill: `python snapshot_program.py FOLDER MODE EPOCHS`.

The modes are the keys of `CONFIGS`; "data" reads a dataset, the others a data loader.

Two workers train a small network with dropout, AdamW and a schedule, in a random order. It saves no
checkpoints. In the end `outcome.json` has a digest of the weights and, by epoch, the samples that
the weights have seen. `pid-RANK`, `pid-driver` and `steps-RANK`, to which each executed step is
appended, say where the run is. A file `die-RANK` with a number, or "end", kills the rank after that
step or after the last one. While a file `limit` exists, no rank begins a step after its number.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from syncline import data, train
from syncline.train.torch import (
    TorchTrainer,
    enable_reproducibility,
    prepare_data_loader,
    prepare_model,
)

WORKERS = 2
ROWS, BATCH = 128, 4
CONFIGS = {
    "manual": None,
    "automatic": train.SnapshotConfig(),
    "data": train.SnapshotConfig(),
    "interval": train.SnapshotConfig(every_s=0.02),
    "brief": train.SnapshotConfig(keep_s=0.2),
}
STEPS = ROWS // WORKERS // BATCH
"""Steps of a rank in an epoch."""


def batches(mode: str) -> Iterable[Any]:
    if mode == "data":
        loop = train.get_dataset_shard("train").iter_torch_batches(batch_size=BATCH)
        return ((batch["id"],) for batch in loop)
    return prepare_data_loader(
        DataLoader(TensorDataset(torch.arange(ROWS)), batch_size=BATCH, shuffle=True)
    )


def train_worker(config: dict[str, Any]) -> None:
    enable_reproducibility(7)
    torch.set_num_threads(1)
    folder, mode = Path(config["folder"]), config["mode"]
    rank = train.get_context().get_world_rank()
    (folder / f"pid-{rank}").write_text(str(os.getpid()))
    table = torch.randn(ROWS, 16, generator=torch.Generator().manual_seed(1))
    model = prepare_model(
        nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.9)
    progress: dict[str, Any] = {"epoch": 0, "step": 0, "seen": {}}
    state: dict[str, Any] = {"model": model, "optimizer": optimizer, "schedule": schedule}
    state["progress"] = progress
    if mode == "manual":
        saved = train.get_snapshot()
        if saved is not None:
            for name in ("model", "optimizer", "schedule"):
                state[name].load_state_dict(saved[name])
            progress.update(saved["progress"])
    else:
        train.register_state(progress=progress, schedule=schedule)
    loader = None if mode == "data" else batches(mode)
    steps = (folder / f"steps-{rank}").open("a", buffering=1)
    while progress["epoch"] < config["epochs"]:
        seen = progress["seen"].setdefault(progress["epoch"], [])
        for (rows,) in loader if loader is not None else batches(mode):
            loss = model(table[rows]).square().mean() + 0.1 * model(table[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            seen.extend(rows.tolist())
            progress["step"] += 1
            steps.write(f"{progress['step']}\n")
            if mode == "manual":
                train.snapshot(state)
            die(folder / f"die-{rank}", progress["step"])
            wait(folder / "limit", progress["step"])
        progress["epoch"] += 1
    die(folder / f"die-{rank}", "end")
    weights = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    end = {"weights": hashlib.sha256(weights).hexdigest(), "seen": progress["seen"]}
    (folder / f"end-{rank}.json").write_text(json.dumps(end))


def die(order: Path, step: object) -> None:
    if order.exists() and order.read_text() == str(step):
        order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def wait(limit: Path, step: int) -> None:
    with suppress(FileNotFoundError):
        while step >= int(limit.read_text()):
            time.sleep(0.001)


def main() -> None:
    folder, mode, epochs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    (folder / "pid-driver").write_text(str(os.getpid()))
    datasets = {}
    if mode == "data":
        data.DataContext.get_current().seed = 5
        datasets = {"train": data.range(ROWS, override_num_blocks=4).random_shuffle(num_blocks=3)}
    TorchTrainer(
        train_worker,
        train_loop_config={"folder": str(folder), "mode": mode, "epochs": epochs},
        datasets=datasets,
        scaling_config=train.ScalingConfig(num_workers=WORKERS),
        run_config=train.RunConfig(
            name="run",
            storage_path=str(folder / "storage"),
            failure_config=train.FailureConfig(max_failures=-1),
            snapshot=CONFIGS[mode],
        ),
    ).fit()
    ends = [json.loads((folder / f"end-{rank}.json").read_text()) for rank in range(WORKERS)]
    outcome = {
        "weights": [end["weights"] for end in ends],
        "seen": {
            epoch: sorted(row for end in ends for row in end["seen"][epoch])
            for epoch in ends[0]["seen"]
        },
    }
    (folder / "outcome.json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
