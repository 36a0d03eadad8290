"""The part of the probe that needs torch: its capabilities, and an all-reduce with Gloo."""

from __future__ import annotations

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from syncline import settings
from syncline.cli.doctor.findings import TorchFacts
from syncline.train.torch import process_group


def facts() -> TorchFacts:
    """Return the capabilities of the installed torch."""
    nccl = dist.is_available() and dist.is_nccl_available()
    return TorchFacts(
        cuda=torch.version.cuda,
        cuda_available=torch.cuda.is_available(),
        nccl=".".join(map(str, torch.cuda.nccl.version())) if nccl else None,  # type: ignore[no-untyped-call]
    )


def all_reduce(
    rank: int, world_size: int, master: tuple[str, int], interface: str | None, limit_s: float
) -> float:
    """Sum a one from every rank with Gloo; return the seconds for joining and summing.

    Uses `interface` unless GLOO_SOCKET_IFNAME is set.

    Raises:
        RuntimeError: The all-reduce fails, or its result is not the number of ranks.
    """
    if interface is not None and settings.environment("GLOO_SOCKET_IFNAME") is None:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    began = time.monotonic()
    store: Store = process_group.make_store(*master, world_size, limit_s)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=limit_s)
    )
    try:
        ones = torch.ones(1)
        dist.all_reduce(ones)
        if ones.item() != world_size:
            raise RuntimeError(f"the all-reduce over {world_size} nodes gave {ones.item():g}")
        return time.monotonic() - began
    finally:
        dist.destroy_process_group()
