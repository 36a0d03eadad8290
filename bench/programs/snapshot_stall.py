"""Time that a training step waits for a copy of 500 MB of state, relative to a copy of the same
bytes between pages that are in use already.

Two workers copy simultaneously, as in a training. syncline: `train.snapshot`. torchrun:
`torch.distributed.checkpoint.async_save`, which copies the state before it returns; the previous
checkpoint is on disk before the next one is measured. BENCH_SCALE multiplies the size.
"""

import ctypes
import importlib
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed

from bench.inputs import scaled
from bench.programs import common, training
from bench.rows.train import SNAPSHOT_BYTES

TENSORS = 100
WARM_UP, CALLS = 3, 7
"""The first two snapshots allocate memory."""

State = dict[str, torch.Tensor]


def large_state() -> State:
    """Return tensors of 500 MB together, multiplied by BENCH_SCALE."""
    count = max(1, scaled(SNAPSHOT_BYTES) // TENSORS // 4)
    return {f"layer.{number}": torch.ones(count) for number in range(TENSORS)}


class Memcpy:
    """A plain copy of the same tensors."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.target = {name: torch.zeros_like(tensor) for name, tensor in state.items()}

    def __call__(self, call: int) -> None:
        for name, tensor in self.state.items():
            target = self.target[name]
            ctypes.memmove(target.data_ptr(), tensor.data_ptr(), 4 * tensor.numel())


class Snapshots:
    """syncline's snapshots."""

    def __init__(self, state: State) -> None:
        self.train = importlib.import_module("syncline.train")
        self.state = state

    def __call__(self, call: int) -> None:
        self.train.snapshot({"model": self.state, "step": call})

    def finish(self) -> None:
        """Do nothing: a snapshot is complete when the call returns."""


class AsyncCheckpoints:
    """Asynchronous checkpoints of `torch.distributed.checkpoint`."""

    def __init__(self, state: State) -> None:
        self.library = importlib.import_module("torch.distributed.checkpoint")
        self.state = state
        self.pending: Any = None

    def __call__(self, call: int) -> None:
        folder = f"saved-{call % 2}"
        self.pending = self.library.async_save({"model": self.state}, checkpoint_id=folder)

    def finish(self) -> None:
        """Wait until the checkpoint is on disk."""
        self.pending.result()


def train_fn(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    state = large_state()
    memcpy = Memcpy(state)
    is_torchrun = config["library"] == "torchrun"
    snapshots = AsyncCheckpoints(state) if is_torchrun else Snapshots(state)
    copies, stalls = [], []
    for call in range(WARM_UP + CALLS):
        copies.append(seconds(memcpy, call))
        stalls.append(seconds(snapshots, call))
        snapshots.finish()
    if torch.distributed.get_rank() == 0:
        memcpy_ms, stall_ms = (common.median_ms(each[WARM_UP:]) for each in (copies, stalls))
        values = {
            "memcpy_ms": memcpy_ms,
            "stall_ms": stall_ms,
            "first_ms": stalls[0] * 1e3,
            "ratio": stall_ms / memcpy_ms,
        }
        common.write(config["out"], values)


def seconds(call: Callable[[int], None], number: int) -> float:
    """Return the time of `call(number)`, which all ranks begin together."""
    torch.distributed.barrier()
    began = time.perf_counter()
    call(number)
    return time.perf_counter() - began


if __name__ == "__main__":
    options = common.arguments()
    training.train(options.library, train_fn, {"out": options.out})
