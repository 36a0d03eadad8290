"""Time from the start of the training function to its first batch, in runs that resume at 1 % and
at 99 % of an epoch.

The argument is a library and its input: `syncline-dataset`, `ray-loader`. The first attempt reads
that share of the epoch, reports a checkpoint and fails. In the second attempt syncline resumes
there automatically. Ray does not, so its programs read from the beginning and drop the batches
before. Only the second attempt is measured, so samples are slow in it only. BENCH_SCALE multiplies
the samples.
"""

import importlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch.utils.data import DataLoader, Dataset

from bench.inputs import PARTS_ROWS, scaled
from bench.programs import common, training
from bench.programs.data import pipelines

WORKERS = 2
SHARES = {"at_1_s": 0.01, "at_99_s": 0.99}
BATCH_ROWS = 250
ITEM_S = 1e-3
LOADER_PROCESSES = 8
MAP_ROWS, MAP_ROW_S = 1000, 50e-6
BLOCK_BYTES = 1 << 20
"""About the rows of three files. Ray would read all files into one block otherwise, and the first
batch would wait for all rows.
"""


class Items(Dataset[int]):
    """A dataset of its indexes, each after `item_s` seconds."""

    def __init__(self, count: int, item_s: float) -> None:
        self.count, self.item_s = count, item_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if self.item_s:
            time.sleep(self.item_s)
        return index


def slow_after_failure(failed: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function on batches that takes time once the run has failed."""

    def double(batch: dict[str, Any]) -> dict[str, Any]:
        if failed.exists():
            time.sleep(MAP_ROW_S * len(batch["id"]))
        return {**batch, "f00": batch["f00"] * 2}

    return double


def batches(config: dict[str, Any]) -> Iterator[np.ndarray]:
    """Yield the ids of this rank's batches."""
    if config["reads"] == "dataset":
        shard = importlib.import_module(f"{config['library']}.train").get_dataset_shard("train")
        for batch in shard.iter_torch_batches(batch_size=BATCH_ROWS):
            yield batch["id"].numpy()
        return
    items = Items(scaled(PARTS_ROWS), ITEM_S if config["failed"].exists() else 0.0)
    loader = DataLoader(items, batch_size=BATCH_ROWS, shuffle=True, num_workers=LOADER_PROCESSES)
    for batch in importlib.import_module(f"{config['library']}.train.torch").prepare_data_loader(
        loader
    ):
        yield batch.numpy()


def train_fn(config: dict[str, Any]) -> None:
    begin = time.perf_counter()
    train = importlib.import_module(f"{config['library']}.train")
    checkpoint, source = train.get_checkpoint(), batches(config)
    if checkpoint is None:
        run_until_failure(config, train, source)
        return
    with checkpoint.as_directory() as folder:
        skipped = (
            0
            if config["library"] == "syncline"
            else json.loads(Path(folder, "batches.json").read_text())
        )
        ids = next(islice(source, skipped, None))
        seconds = time.perf_counter() - begin
        repeated = np.isin(
            ids, np.concatenate([np.load(file) for file in Path(folder).glob("*.npy")])
        ).sum()
    slowest, repeats = torch.tensor([seconds]), torch.tensor([int(repeated)])
    torch.distributed.all_reduce(slowest, torch.distributed.ReduceOp.MAX)
    torch.distributed.all_reduce(repeats)
    if torch.distributed.get_rank() == 0:
        print(
            f"user: {config['key']} {slowest.item():.3f}, {repeats.item()} samples repeated",
            flush=True,
        )
        common.write(config["part"], {config["key"]: slowest.item(), "repeated": repeats.item()})


def run_until_failure(config: dict[str, Any], train: Any, source: Iterator[np.ndarray]) -> None:
    """Run the first attempt: read a share of the epoch, report a checkpoint, fail."""
    wanted = max(1, int(SHARES[config["key"]] * scaled(PARTS_ROWS) / WORKERS / BATCH_ROWS))
    seen = list(islice(source, wanted))
    assert len(seen) == wanted, f"{len(seen)} batches instead of {wanted}"
    rank = torch.distributed.get_rank()
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, f"seen-{rank}.npy"), np.concatenate(seen))
        Path(folder, "batches.json").write_text(json.dumps(wanted))
        train.report({"batches": wanted}, checkpoint=train.Checkpoint.from_directory(folder))
        train.get_all_reported_checkpoints()  # returns after the commit
    torch.distributed.barrier()
    config["failed"].touch()
    raise RuntimeError("user: intended failure at the end of the first attempt")


def run(library: str, reads: str, key: str, data: Any) -> common.Values:
    """Return the values of one run that fails and resumes."""
    failed, part = Path(f"failed-{key}").absolute(), Path(f"part-{key}.json").absolute()
    datasets = None
    if reads == "dataset":
        data.DataContext.get_current().target_max_block_size = BLOCK_BYTES
        datasets = {
            "train": data.read_parquet(str(pipelines.input_folder())).map_batches(
                slow_after_failure(failed), batch_size=MAP_ROWS
            )
        }
    config = {"reads": reads, "key": key, "failed": failed, "part": str(part)}
    training.train(library, train_fn, config, max_failures=1, run={"name": key}, datasets=datasets)
    values: common.Values = json.loads(part.read_text())
    return values


if __name__ == "__main__":
    options = common.arguments()
    library, _, reads = options.library.partition("-")
    core, data = pipelines.start(
        library, cpus=pipelines.CPUS + (WORKERS if library == "ray" else 0)
    )
    runs = [run(library, reads, key, data) for key in SHARES]
    values = {key: value for each in runs for key, value in each.items()}
    values |= {
        "growth": values["at_99_s"] / values["at_1_s"],
        "repeated": sum(each["repeated"] for each in runs),
    }
    common.write(options.out, values)
    core.shutdown()
