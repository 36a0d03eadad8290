"""Processes inside of ranks: `spawn`, a pool, workers of a data loader."""

import multiprocessing
import os

import torch
from torch.utils.data import DataLoader, Dataset

rank = os.environ["RANK"]


class Squares(Dataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return index * index


def double(value: int) -> int:
    return 2 * value


def child(index: int, queue) -> None:
    queue.put((index, os.environ["RANK"], __name__, multiprocessing.current_process().name != ""))


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    torch.multiprocessing.spawn(child, args=(queue,), nprocs=2)
    print(f"[{rank}] spawned {sorted(queue.get() for _ in range(2))}")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(f"[{rank}] pool {pool.map(double, range(4))}")
    batches = [batch.tolist() for batch in DataLoader(Squares(), batch_size=3, num_workers=2)]
    print(f"[{rank}] loader {batches}")
else:
    print(f"[{rank}] imported as {__name__}")
