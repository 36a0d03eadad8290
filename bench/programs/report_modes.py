"""Duration of `report` in every mode with checkpoints of several sizes, and time to their commit.

The argument is a library and a storage: `syncline-local`, `ray-slow`. Two workers report
simultaneously; rank 0 has the files. Each report waits for the commit of the previous one, so that
it is measured alone. BENCH_SCALE multiplies the sizes.
"""

import importlib
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import torch.distributed

from bench.inputs import scaled
from bench.programs import common, report, slow_storage, training
from bench.rows.train import MODES, SIZES

WRITTEN_AT_ONCE = 1_000_000
CALLS = 3
LARGE_BYTES, LARGE_CALLS = 100_000_000, 2


class Reports:
    """The calls of `report` with checkpoints on one rank."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.train = importlib.import_module(f"{config['library']}.train")
        self.is_first = torch.distributed.get_rank() == 0
        self.run_directory, self.scratch = Path(config["run_directory"]), Path(config["scratch"])
        # The filesystem of the run: fsspec filesystems from different threads compare unequal.
        self.filesystem = self.train.get_context().get_storage().storage_filesystem
        self.made = 0

    def measure(self, mode: str, size: int, calls: int) -> tuple[float, float]:
        """Return the median seconds of a call, and from its start to the commit."""
        taken, committed = zip(*(self.once(mode, size) for _ in range(calls)), strict=True)
        return statistics.median(taken), statistics.median(committed)

    def once(self, mode: str, size: int) -> tuple[float, float]:
        stays_in_place = mode == "NO_UPLOAD"
        folder = (
            self.make(size, self.run_directory if stays_in_place else self.scratch)
            if self.is_first
            else None
        )
        checkpoint = (
            self.train.Checkpoint(str(folder), self.filesystem if stays_in_place else None)
            if folder
            else None
        )
        torch.distributed.barrier()
        begin = time.perf_counter()
        self.train.report(
            {"loss": 0.5},
            checkpoint=checkpoint,
            checkpoint_upload_mode=self.train.CheckpointUploadMode[mode],
        )
        taken = time.perf_counter() - begin
        self.train.get_all_reported_checkpoints(
            consistency_mode=self.train.CheckpointConsistencyMode.COMMITTED
        )
        committed = time.perf_counter() - begin
        if folder and not stays_in_place:
            shutil.rmtree(folder, ignore_errors=True)  # ASYNC has deleted it already
        return taken, committed

    def make(self, size: int, parent: Path) -> Path:
        """Write a checkpoint of one file in `parent`, bypassing slow storage: not measured."""
        os.sync()  # earlier writes must not slow down the measurement
        self.made += 1
        folder = parent / f"given-{self.made}"
        folder.mkdir(parents=True)
        block = os.urandom(min(size, WRITTEN_AT_ONCE))
        with Path(folder, "state.bin").open("wb") as file:
            for begin in range(0, size, len(block)):
                file.write(block[: size - begin])
        return folder


def train_fn(config: dict[str, Any]) -> None:
    values = {"metrics_ms": report.metrics_only_s(config["library"]) * 1e3}
    reports = Reports(config)
    reports.measure("SYNC", 1, 1)  # warm-up: the first call imports modules
    for mode in MODES:
        for name, full_size in SIZES.items():
            size = scaled(full_size)
            taken_s, committed_s = reports.measure(
                mode, size, LARGE_CALLS if size > LARGE_BYTES else CALLS
            )
            values |= {
                f"{mode}_{name}_ms": taken_s * 1e3,
                f"{mode}_{name}_committed_s": committed_s,
            }
            if reports.is_first:
                print(
                    f"user: {mode} {name}: {taken_s * 1e3:.2f} ms, "
                    f"committed after {committed_s:.3f} s",
                    flush=True,
                )
    if reports.is_first:
        common.write(config["out"], values)


if __name__ == "__main__":
    options = common.arguments()
    library, _, storage = options.library.partition("-")
    keep_one = importlib.import_module(f"{library}.train").CheckpointConfig(num_to_keep=1)
    training.train(
        library,
        train_fn,
        {
            "out": options.out,
            "run_directory": os.path.abspath("storage/bench"),
            "scratch": os.path.abspath("scratch"),
        },
        run={
            "checkpoint_config": keep_one,
            "storage_filesystem": slow_storage.filesystem() if storage == "slow" else None,
        },
    )
