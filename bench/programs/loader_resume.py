"""Samples that are lost or repeated when training is killed and started again, for the loaders that
programs use, with syncline and with the library's own resume.

    python -m bench.programs.loader_resume [SIDE] [--kills 20] [--seed 1] [--loaders NAME ...]

All loaders are read in one training run, a batch of each in every step, and each reads `EPOCHS`
epochs of `ROWS` samples. A run saves a checkpoint after every second step, and a random rank kills
itself with SIGKILL after a random number of steps, `--kills` times in all. The run restarts itself
from the last checkpoint; every fourth kill ends it, and the next run of the same name continues.
With syncline that is on another number of workers. A sample counts once for each time that it is in
the steps that the final weights contain: steps after the last checkpoint before a kill are undone
with the weights, and do not count.

With syncline, the loader is passed to `prepare_data_loader`, or the files are read with
`read_mds` and `read_litdata`. Otherwise the program does what the library's documentation says, on
a fixed number of workers. Libraries that are not installed are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed

import syncline
from bench.programs import common, resume_loaders
from bench.rows.train import KILLS
from syncline import train
from syncline.train.torch import TorchTrainer

EPOCHS, SAVE_EVERY = 5, 2
SIZES = (2, 1, 4, 2, 1)
"""Numbers of workers of the runs, in turn. Batches of 4 samples then have no uneven end, for which
samples would be repeated on purpose.
"""
KILLS_PER_RUN = 4
"""Kills until a run ends and the next one continues; before, the run restarts itself."""
FIXED_SIZE = 2
LONGEST_RUN = 9
"""Largest number of steps of a run."""


class Reading:
    """A loader of a rank, and the samples that were read from it."""

    def __init__(self, loader: resume_loaders.Loader) -> None:
        self.loader = loader
        self.epoch = self.step = 0
        self.before: list[list[int]] = [[] for _ in range(EPOCHS)]
        """Samples of all ranks in the attempts before, by epoch."""
        self.seen: list[list[int]] = [[] for _ in range(EPOCHS)]
        """Samples of this rank in this attempt, by epoch."""
        self._batches: Iterator[list[int]] | None = None

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint."""
        facts = json.loads((folder / "reading.json").read_text())
        self.epoch, self.step = facts["epoch"], facts["step"]
        self.before = merged(folder)
        if self.epoch < EPOCHS:
            self.loader.load(folder, self.epoch, self.step)

    def save(self, folder: Path, rank: int) -> None:
        """Write the state for a checkpoint."""
        folder.mkdir()
        self.loader.save(folder, self.step)
        (folder / f"seen-{rank}.json").write_text(json.dumps(self.seen))
        if rank == 0:
            facts = {"epoch": self.epoch, "step": self.step, "before": self.before}
            (folder / "reading.json").write_text(json.dumps(facts))

    def next(self) -> list[int] | None:
        """Return the next batch of the epoch; None if it has no more."""
        if self.epoch == EPOCHS:
            return None
        if self._batches is None:
            self._batches = self.loader.batches(self.epoch)
        return next(self._batches, None)

    def receive(self, ids: list[int] | None, have_one: bool) -> None:
        """Count a batch; begin the next epoch if no rank has one."""
        if have_one:
            self.seen[self.epoch] += ids or []
            self.step += 1
        elif self.epoch < EPOCHS:
            self.epoch, self.step, self._batches = self.epoch + 1, 0, None


def merged(folder: Path) -> list[list[int]]:
    """Return the samples in a checkpoint, by epoch."""
    samples: list[list[int]] = json.loads((folder / "reading.json").read_text())["before"]
    for path in sorted(folder.glob("seen-*.json")):
        for ids, more in zip(samples, json.loads(path.read_text()), strict=True):
            ids += more
    return samples


def train_fn(config: dict[str, Any]) -> None:
    warnings.filterwarnings("ignore")
    torch.manual_seed(config["seed"])
    rank, size = train.get_context().get_world_rank(), train.get_context().get_world_size()
    readings = {
        name: Reading(
            resume_loaders.LOADERS[name](
                library=config["library"], folder=Path(folder), rank=rank, size=size
            )
        )
        for name, folder in config["inputs"].items()
    }
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            for number, reading in enumerate(readings.values()):
                reading.load(Path(directory, str(number)))
    number = len(list(Path(config["killed"]).iterdir()))
    rng = random.Random(f"{config['seed']} {number}")
    die_at = rng.randint(1, LONGEST_RUN) if number < config["kills"] else 0
    victim = rng.randrange(size)
    steps = 0
    while any(reading.epoch < EPOCHS for reading in readings.values()):
        batches = [reading.next() for reading in readings.values()]
        have_one = torch.tensor([int(ids is not None) for ids in batches])
        torch.distributed.all_reduce(have_one)
        for reading, ids, count in zip(readings.values(), batches, have_one.tolist(), strict=True):
            reading.receive(ids, bool(count))
        steps += 1
        if steps % SAVE_EVERY == 0:
            save(readings, rank)
        if steps == die_at and rank == victim:
            Path(config["killed"], str(number)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    save(readings, rank)


def save(readings: dict[str, Reading], rank: int) -> None:
    """Report a checkpoint."""
    with tempfile.TemporaryDirectory() as directory:
        for number, reading in enumerate(readings.values()):
            reading.save(Path(directory, str(number)), rank)
        train.report({}, checkpoint=train.Checkpoint.from_directory(directory))


def run(inputs: dict[str, Path], library: bool, kills: int, seed: int) -> dict[str, Outcome]:
    """Kill and resume a training, and return the outcome of each loader."""
    with tempfile.TemporaryDirectory() as storage:
        killed = Path(storage, "killed")
        killed.mkdir()
        config = {
            "inputs": {name: str(folder) for name, folder in inputs.items()},
            "library": library,
            "seed": seed,
            "kills": kills,
            "killed": str(killed),
        }
        datasets = {
            name: dataset
            for name, folder in inputs.items()
            if not library and (dataset := resume_loaders.LOADERS[name].dataset(folder)) is not None
        }
        while True:
            before = len(list(killed.iterdir()))
            number = before // KILLS_PER_RUN
            trainer = TorchTrainer(
                train_fn,
                train_loop_config=config,
                scaling_config=train.ScalingConfig(
                    num_workers=FIXED_SIZE if library else SIZES[number % len(SIZES)],
                    resources_per_worker={"CPU": 1},
                ),
                run_config=train.RunConfig(
                    name="run",
                    storage_path=storage,
                    checkpoint_config=train.CheckpointConfig(1),
                    failure_config=train.FailureConfig(max_failures=KILLS_PER_RUN - 1),
                ),
                datasets=datasets,
            )
            try:
                result = trainer.fit()
                break
            except train.TrainingFailedError:
                if len(list(killed.iterdir())) - before < KILLS_PER_RUN:
                    raise
        folder = Path(result.checkpoint.path)  # type: ignore[union-attr]
        count = len(list(killed.iterdir()))
        return {
            name: outcome(merged(folder / str(number)), count) for number, name in enumerate(inputs)
        }


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Lost and repeated samples of a loader after some kills."""

    lost: int
    repeated: int
    kills: int

    def __str__(self) -> str:
        return f"{self.lost} / {self.repeated} ({self.kills} kills)"


def outcome(samples: list[list[int]], kills: int) -> Outcome:
    """Count the lost and repeated samples of all epochs."""
    counts = [Counter(ids) for ids in samples]
    wanted = range(resume_loaders.ROWS)
    return Outcome(
        lost=sum(count[sample] == 0 for count in counts for sample in wanted),
        repeated=sum(max(0, count[sample] - 1) for count in counts for sample in wanted),
        kills=kills,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Count lost and repeated samples.")
    parser.add_argument("side", nargs="?", choices=("syncline", "library"))
    parser.add_argument("--out", help="file for the sums over all loaders of one side")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loaders", nargs="*", default=list(resume_loaders.LOADERS))
    options = parser.parse_args()
    resume_loaders.import_libraries()  # workers get what their program has imported
    syncline.init(num_cpus=max(SIZES))
    with tempfile.TemporaryDirectory() as folder:
        inputs: dict[str, Path] = {}
        for number, name in enumerate(options.loaders):
            if resume_loaders.LOADERS[name].is_installed():
                inputs[name] = Path(folder, str(number))
                inputs[name].mkdir()
                resume_loaders.LOADERS[name].write(inputs[name])
        sides = [options.side] if options.side else ["syncline", "library"]
        found = {
            side: run(inputs, side == "library", options.kills, options.seed) for side in sides
        }
    print(f"| loader | {' | '.join(f'lost / repeated, {side}' for side in sides)} |")
    print(f"|---|{'---|' * len(sides)}")
    for name in inputs:
        print(f"| {name} | {' | '.join(str(found[side][name]) for side in sides)} |", flush=True)
    if options.out:
        outcomes = [each for side in sides for each in found[side].values()]
        values = {
            "lost": float(sum(each.lost for each in outcomes)),
            "repeated": float(sum(each.repeated for each in outcomes)),
            "loaders": float(len(inputs)),
        }
        common.write(options.out, values)
    syncline.shutdown()


if __name__ == "__main__":
    main()
