"""Duration of `report(metrics)` on rank 0 of two workers, without and with a 10 kB checkpoint; both
ranks report.

Ray's `report` waits for its controller. A `report` that only queues a message would look too cheap
in a short burst. Therefore syncline makes many more calls than its queue holds, and the measurement
ends when all reports are received and all checkpoints are committed.
"""

import importlib
import os
import tempfile
from pathlib import Path
from typing import Any

import torch.distributed

from bench.inputs import scaled
from bench.programs import common, training

# Calls without and with a checkpoint. A report takes two seconds on Ray.
CALLS = {"ray": (4, 4), "syncline": (40_000, 200)}


def metrics_only_s(library: str) -> float:
    """Return the seconds of a `report` without a checkpoint. All ranks must call this together."""
    train = importlib.import_module(f"{library}.train")
    received = (
        importlib.import_module("syncline.train.collective").barrier
        if library == "syncline"
        else lambda: None
    )
    return common.seconds_each(
        lambda index: train.report({"step": index, "loss": 0.5}),
        scaled(CALLS[library][0]),
        received,
    )


def train_fn(config: dict[str, Any]) -> None:
    library = config["library"]
    train = importlib.import_module(f"{library}.train")
    rank = torch.distributed.get_rank()
    with_checkpoint = CALLS[library][1]
    committed = train.get_checkpoint if library == "syncline" else lambda: None
    metrics_s = metrics_only_s(library)

    with tempfile.TemporaryDirectory() as scratch:
        folders = []
        for index in range(with_checkpoint + 1):  # created before: only the call is measured
            folders.append(Path(scratch, f"{index}"))
            folders[-1].mkdir()
            Path(folders[-1], "state.bin").write_bytes(os.urandom(10_000))

        def report(index: int) -> None:
            checkpoint = train.Checkpoint.from_directory(str(folders[index])) if rank == 0 else None
            train.report({"step": index, "loss": 0.5}, checkpoint=checkpoint)

        checkpoint_s = common.seconds_each(report, with_checkpoint, committed)
    if rank == 0:
        common.write(
            config["out"], {"metrics_ms": metrics_s * 1e3, "checkpoint_ms": checkpoint_s * 1e3}
        )


if __name__ == "__main__":
    options = common.arguments()
    training.train(options.library, train_fn, {"out": options.out})
