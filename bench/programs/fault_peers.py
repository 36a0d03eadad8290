"""A script for torchrun with an injected fault, for the peers of `syncline.testing.fault_matrix`.

    traceml run --nproc-per-node 4 bench/programs/fault_peers.py --args FAULT DIRECTORY
    torchrun --nproc-per-node 4 bench/programs/fault_peers.py FAULT DIRECTORY
    torchfrtrace DIRECTORY --prefix rank

It trains the model of the matrix with DDP for some seconds, within `traceml_ai.trace_step` if
TraceML is installed. After a limit each rank dumps PyTorch's flight recorder into the directory and
ends, as it does where NCCL's watchdog is at work.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")

import torch
import torch.distributed as dist
from torch import nn
from torch._C import _distributed_c10d
from torch.utils.data import DataLoader

from syncline.testing.emulated_network import EmulatedHost, emulated_network
from syncline.testing.torch_training import Batches, joined, reduced, small_model
from syncline.testing.training_faults import FaultInjector, FaultPlan, TrainingFault

TRAINS_S = 12.0
LIMIT_S = 30.0
SLACK_S = 5.0
"""Seconds until a rank ends after its dump, as the others may be later."""
_open = contextlib.ExitStack()  # until the end of the process


def main(fault: str, directory: Path) -> None:
    """Train with the fault on rank 1."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    threading.Thread(target=_dump_later, args=(directory / f"rank{rank}",), daemon=True).start()
    plan = FaultPlan(fault=None if fault == "none" else TrainingFault(fault), first_step=20)
    network = _emulated(rank) if plan.fault is TrainingFault.NETWORK_DELAY else None
    injector = FaultInjector(plan, rank, network=network)
    model = nn.parallel.DistributedDataParallel(small_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    traced = _tracer(model)
    loader = DataLoader(Batches(injector.load), batch_size=None)
    began = time.monotonic()
    injector.begin_step(0)
    for step, loaded in enumerate(loader, start=1):
        with traced():
            batch = loaded + injector.poison
            injector.compute()
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        wants_end = rank == 0 and time.monotonic() - began > TRAINS_S
        is_over = reduced(loss.detach(), wants_end, injector.collective)
        if is_over:
            break
        injector.begin_step(step)
    injector.close()
    print(f"rank {rank} ended after {step} steps with loss {loss.item()}", flush=True)


def _emulated(rank: int) -> EmulatedHost:
    """Move each rank to a separate host; the network ends with rank 0."""
    world_size = dist.get_world_size()
    names = [_open.enter_context(emulated_network(world_size)) if rank == 0 else ""]
    dist.broadcast_object_list(names)
    return joined(names[0], rank, world_size)


def _tracer(model: nn.Module) -> Callable[[], AbstractContextManager[object]]:
    try:
        import traceml_ai
    except ImportError:
        return contextlib.nullcontext
    traceml_ai.init(mode="auto")
    return lambda: traceml_ai.trace_step(model)


def _dump_later(path: Path) -> None:
    time.sleep(LIMIT_S)
    path.write_bytes(_distributed_c10d._dump_fr_trace())
    time.sleep(SLACK_S)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
