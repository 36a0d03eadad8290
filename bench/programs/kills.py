"""Goodput of a training whose workers are killed with SIGKILL at random moments, its lost and
repeated samples, and its weights.

A random one of two workers kills itself a random time after an attempt began, `BENCH_KILLS` times;
the times are exponentially distributed with a mean of `BENCH_KILL_DISTANCE_S` seconds. Then the
program trains the same number of steps without kills, and compares the weights. syncline takes
automatic memory snapshots. torchrun restarts its workers, which continue from the last asynchronous
checkpoint of `torch.distributed.checkpoint` (one every ten steps) and drop the batches before.

`repeated` counts the executions of a step after the first. A sample counts in the steps that the
final weights contain.
"""

import hashlib
import importlib
import itertools
import os
import random
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from bench.programs import common, training
from bench.programs.snapshot_recovery import STEP_S, AsyncCheckpoints, Saving
from bench.rows.train import KILL_DISTANCE_S, KILLS

RANKS = 2
SAMPLES, BATCH = 1_600, 8
STEPS_PER_EPOCH = SAMPLES // BATCH // RANKS
CHECK_EVERY = 25
"""Steps after which the ranks agree on whether all kills have happened."""
SEED = 1


def die_later(killed: Path, rank: int) -> None:
    """Kill this process, which has this rank, at a random moment, if it is the next victim."""
    number = len(list(killed.iterdir()))
    chance = random.Random(f"{SEED} {number}")
    delay_s, victim = chance.expovariate(1.0 / KILL_DISTANCE_S), chance.randrange(RANKS)
    if number >= KILLS or victim != rank:
        return

    def die() -> None:
        time.sleep(delay_s)
        (killed / str(number)).touch()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=die, daemon=True).start()


def all_have_happened(killed: Path) -> bool:
    """Return True on all ranks if rank 0 has seen all kills."""
    is_over = torch.tensor([len(list(killed.iterdir())) >= KILLS])
    torch.distributed.broadcast(is_over, 0)
    return bool(is_over)


def batches(library: str, first: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield (ids, features) without end, from step `first` on."""
    generator = torch.Generator().manual_seed(SEED)
    features = torch.randn(SAMPLES, 64, generator=generator)
    dataset = TensorDataset(torch.arange(SAMPLES), features)
    if library == "syncline":
        loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
        prepared = importlib.import_module("syncline.train.torch").prepare_data_loader(loader)
        while True:
            yield from prepared
    sampler: DistributedSampler[Any] = DistributedSampler(dataset, seed=SEED)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
    for epoch in itertools.count(first // STEPS_PER_EPOCH):
        sampler.set_epoch(epoch)
        is_first = epoch == first // STEPS_PER_EPOCH
        yield from itertools.islice(loader, first % STEPS_PER_EPOCH if is_first else 0, None)


def train_fn(config: dict[str, Any]) -> None:
    """Train with kills, or `config["steps"]` steps without."""
    os.chdir(config["folder"])
    library, steps = config["library"], config["steps"]
    is_disturbed = steps is None
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = training.wrap(library, torch.nn.Linear(64, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    kind = AsyncCheckpoints if library == "torchrun" and is_disturbed else Saving
    saving = kind(config, model, optimizer)
    if library == "syncline" or is_disturbed:
        saving.restore()
    rank, killed = torch.distributed.get_rank(), Path("killed")
    if is_disturbed:
        die_later(killed, rank)
    log = os.open(
        f"steps-{rank}" if is_disturbed else os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND
    )
    progress = saving.progress
    source = batches(library, progress["step"])
    for ids, features in source:
        loss = model(features).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress["step"] += 1
        step = progress["step"]
        if is_disturbed:
            saving.step_done()
            time.sleep(STEP_S)
            os.write(
                log, f"{step} {time.monotonic()} {' '.join(map(str, ids.tolist()))}\n".encode()
            )
        if step == steps or (
            is_disturbed and step % CHECK_EVERY == 0 and all_have_happened(killed)
        ):
            break
    if rank == 0:
        weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
        digest = hashlib.sha256(weights).hexdigest()
        Path("disturbed" if is_disturbed else "undisturbed").write_text(digest)


def made(rank: int) -> list[tuple[int, float, list[int]]]:
    """Return the steps of a rank in the order in which it made them: number, time, samples."""
    lines = [line.split() for line in Path(f"steps-{rank}").read_text().splitlines()]
    return [(int(step), float(at), list(map(int, ids))) for step, at, *ids in lines]


def wrong_samples(steps: list[list[tuple[int, float, list[int]]]]) -> int:
    """Return the number of samples that complete epochs lost or repeated."""
    final = [{number: ids for number, _, ids in own} for own in steps]
    count = min(map(max, final))
    wrong = 0
    for epoch in range(count // STEPS_PER_EPOCH):
        numbers = range(epoch * STEPS_PER_EPOCH + 1, (epoch + 1) * STEPS_PER_EPOCH + 1)
        read = Counter(each for own in final for number in numbers for each in own[number])
        wrong += sum(abs(read[sample] - 1) for sample in range(SAMPLES))
    return wrong


def values() -> common.Values:
    """Return the result of both trainings."""
    steps = [made(rank) for rank in range(RANKS)]
    first, count = steps[0], len({number for number, _, _ in steps[0]})
    pairs = itertools.pairwise(first)
    step_s = statistics.median(b[1] - a[1] for a, b in pairs if b[0] == a[0] + 1)
    lasted_s = first[-1][1] - first[0][1] + step_s
    repeated = sum(len(own) - len({number for number, _, _ in own}) for own in steps)
    return {
        "goodput": 100.0 * count * step_s / lasted_s,
        "lost_s": (lasted_s - count * step_s) / KILLS,
        "repeated": repeated / RANKS / KILLS,
        "wrong_samples": float(wrong_samples(steps)),
        "differs": float(Path("disturbed").read_text() != Path("undisturbed").read_text()),
        "steps": float(count),
    }


def main() -> None:
    """Train with and without kills."""
    options = common.arguments()
    folder = Path.cwd()
    (folder / "killed").mkdir(exist_ok=True)
    config: dict[str, Any] = {"folder": str(folder), "steps": None, "library": options.library}
    if options.library == "torchrun":
        torch.distributed.init_process_group("gloo")
        train_fn(config)
        torch.distributed.barrier()
        train_fn({**config, "steps": made(0)[-1][0]})
        is_first = torch.distributed.get_rank() == 0
        torch.distributed.destroy_process_group()
        if is_first:
            common.write(options.out, values())
        return
    snapshot = importlib.import_module("syncline.train").SnapshotConfig()
    training.train("syncline", train_fn, config, max_failures=KILLS, run={"snapshot": snapshot})
    rest = {**config, "steps": made(0)[-1][0]}
    training.train("syncline", train_fn, rest, run={"name": "undisturbed"})
    common.write(options.out, values())


if __name__ == "__main__":
    main()
