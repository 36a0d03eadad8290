"""A small training with each way of parallelism on CPUs, into which faults can be injected."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.utils.data import DataLoader, Dataset

from syncline import train
from syncline.testing import emulated_network
from syncline.testing.emulated_network import EmulatedHost
from syncline.testing.training_faults import FaultInjector, FaultPlan, TrainingFault
from syncline.train.torch import prepare_model

Parallelism = Literal["ddp", "fsdp2", "tensor"]
PARALLELISMS: tuple[Parallelism, ...] = ("ddp", "fsdp2", "tensor")
TIMEOUT_S = 60.0
"""Limit of a collective operation in a trial."""
STORE_PORT = 29500
"""Port of the store of the process group on the emulated host of rank 0."""
WIDTH = 64
BATCH = 16


class Batches(Dataset[torch.Tensor]):
    """Endless batches, whose loading can be delayed. All ranks have the same ones."""

    def __init__(self, on_load: Callable[[], None]) -> None:
        self._on_load = on_load

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> torch.Tensor:
        self._on_load()
        generator = torch.Generator().manual_seed(index)
        return torch.randn(BATCH, WIDTH, generator=generator)


def small_model() -> nn.Sequential:
    """Return a perceptron with two layers."""
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))


def prepared(parallelism: Parallelism, world_size: int) -> nn.Module:
    """Return the model, distributed over all ranks."""
    torch.manual_seed(0)
    model = small_model()
    if parallelism == "ddp":
        return prepare_model(model)
    if parallelism == "fsdp2":
        return prepare_model(model, parallel_strategy="fsdp")
    mesh = init_device_mesh("cpu", (world_size,), mesh_dim_names=("tp",))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return prepare_model(model, parallel_strategy_kwargs={"mesh": mesh, "parallelize_plan": plan})


def train_with_fault(config: Mapping[str, object]) -> None:
    """Train until the file `config["stop"]` exists, or for `config["steps"]` steps.

    Args:
        config: Also "parallelism", and "plan", the result of `FaultPlan.to_json`. "pause_s" is the
            least time of a step in seconds. With "network", the name that
            `emulated_network` yields, each rank gets a separate host.
    """
    context = train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    plan = FaultPlan.from_json(config["plan"])  # type: ignore[arg-type]  # plain values
    network = joined(str(config["network"]), rank, world_size) if "network" in config else None
    injector = FaultInjector(plan, rank, network=network)
    model = prepared(config["parallelism"], world_size)  # type: ignore[arg-type]  # checked
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(DataLoader(Batches(injector.load), batch_size=None))
    stop, steps = str(config["stop"]), int(str(config["steps"]))
    pause_s = float(str(config.get("pause_s", 0.0)))
    try:
        for step in range(steps):
            injector.begin_step(step)
            batch = next(batches) + injector.poison
            injector.compute()
            time.sleep(pause_s)
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            wants_end = rank == 0 and os.path.exists(stop)
            is_over = reduced(loss.detach(), wants_end, injector.collective)
            train.report({"loss": loss.item(), "step": step})
            if is_over:
                return
    finally:
        injector.close()


def joined(network: str, rank: int, world_size: int) -> EmulatedHost:
    """Move this rank to a separate host, and create the process group again between the hosts."""
    dist.barrier()
    dist.destroy_process_group()
    host = emulated_network.join(network, rank)
    os.environ["GLOO_SOCKET_IFNAME"] = host.interface
    limit = timedelta(seconds=TIMEOUT_S)
    store = dist.TCPStore(emulated_network.address(0), STORE_PORT, world_size, rank == 0, limit)
    dist.init_process_group("gloo", store=store, timeout=limit, rank=rank, world_size=world_size)
    return host


def reduced(loss: torch.Tensor, wants_end: bool, fault: TrainingFault | None) -> bool:
    """Reduce the loss over the ranks; return True if rank 0 wants the end."""
    values = torch.tensor([float(loss), float(wants_end)])
    if fault is TrainingFault.MISSING_COLLECTIVE:
        return False
    if fault is TrainingFault.MISMATCHED_COLLECTIVES:
        dist.broadcast(values, src=0)
    elif fault is TrainingFault.MISMATCHED_SHAPES:
        dist.all_reduce(torch.zeros(3))
    else:
        dist.all_reduce(values)
    return bool(values[1] > 0)
