"""Time that a training step waits for a checkpoint of 500 MB by `train.save` and `report` (ASYNC),
relative to a memory snapshot of the same state by `train.snapshot`.

Both alternate on rank 0. Each checkpoint is committed before the next measurement. BENCH_SCALE
multiplies the size.
"""

import importlib
import statistics
from typing import Any

import torch
import torch.distributed

from bench.programs import common, training
from bench.programs.snapshot_stall import CALLS, WARM_UP, Snapshots, large_state, seconds


def train_fn(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    train = importlib.import_module("syncline.train")
    is_first = torch.distributed.get_rank() == 0
    state = large_state() if is_first else {}
    snapshot = Snapshots(state)

    def save(call: int) -> None:
        checkpoint = train.save({"model": state, "step": call}) if is_first else None
        mode = train.CheckpointUploadMode.ASYNC
        train.report({"step": call}, checkpoint=checkpoint, checkpoint_upload_mode=mode)

    def commit() -> None:
        mode = train.CheckpointConsistencyMode.COMMITTED
        train.get_all_reported_checkpoints(consistency_mode=mode)

    snapshots, saves = [], []
    for call in range(WARM_UP + CALLS):
        snapshots.append(seconds(snapshot, call))
        saves.append(seconds(save, call))
        commit()
    if is_first:
        snapshot_ms, save_ms = (common.median_ms(each[WARM_UP:]) for each in (snapshots, saves))
        pairs = zip(saves[WARM_UP:], snapshots[WARM_UP:], strict=True)
        values = {
            "snapshot_ms": snapshot_ms,
            "save_ms": save_ms,
            "ratio": statistics.median(ours / theirs for ours, theirs in pairs),
        }
        common.write(config["out"], values)


if __name__ == "__main__":
    options = common.arguments()
    keep_one = importlib.import_module("syncline.train").CheckpointConfig(num_to_keep=1)
    training.train(
        options.library, train_fn, {"out": options.out}, run={"checkpoint_config": keep_one}
    )
