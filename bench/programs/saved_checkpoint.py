"""Time that a training step waits for a checkpoint of 500 MB, serialization included, and time to
its commit, on the local disk and on slow storage.

The argument is a library and a storage: `syncline-local`, `ray-slow`. syncline: `train.save` and
`report` with ASYNC. Ray: `torch.save` and `report` with ASYNC. Rank 0 has the state. Each
checkpoint is committed before the next one is measured. BENCH_SCALE multiplies the size.
"""

import importlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from bench.programs import common, slow_storage, training
from bench.programs.snapshot_stall import large_state

WARM_UP, CALLS = 2, 3


def train_fn(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    library = config["library"]
    train = importlib.import_module(f"{library}.train")
    is_first = torch.distributed.get_rank() == 0
    state = large_state() if is_first else {}
    stalls, commits = [], []
    for call in range(WARM_UP + CALLS):
        torch.distributed.barrier()
        began = time.perf_counter()
        checkpoint = None
        if is_first and library == "syncline":
            checkpoint = train.save({"model": state, "step": call})
        elif is_first:
            folder = tempfile.mkdtemp(dir=config["scratch"])
            torch.save({"model": state, "step": call}, Path(folder, "state.pt"))
            checkpoint = train.Checkpoint.from_directory(folder)
        train.report(
            {"step": call},
            checkpoint=checkpoint,
            checkpoint_upload_mode=train.CheckpointUploadMode.ASYNC,
        )
        stalls.append(time.perf_counter() - began)
        train.get_all_reported_checkpoints(
            consistency_mode=train.CheckpointConsistencyMode.COMMITTED
        )
        commits.append(time.perf_counter() - began)
    if is_first:
        values = {
            "stall_ms": common.median_ms(stalls[WARM_UP:]),
            "committed_s": common.median_ms(commits[WARM_UP:]) / 1e3,
        }
        common.write(config["out"], values)


if __name__ == "__main__":
    options = common.arguments()
    library, _, storage = options.library.partition("-")
    keep_one = importlib.import_module(f"{library}.train").CheckpointConfig(num_to_keep=1)
    scratch = os.path.abspath("scratch")
    os.makedirs(scratch, exist_ok=True)
    training.train(
        library,
        train_fn,
        {"out": options.out, "scratch": scratch},
        run={
            "checkpoint_config": keep_one,
            "storage_filesystem": slow_storage.filesystem() if storage == "slow" else None,
        },
    )
