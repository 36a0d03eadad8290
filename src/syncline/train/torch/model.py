"""`prepare_model`: a model on the worker's device, wrapped for parallel training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syncline.train.session import get_session
from syncline.train.torch.amp import cast_forward
from syncline.train.torch.device import get_device

ParallelStrategy = Literal["ddp", "fsdp"]


def prepare_model(
    model: nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: ParallelStrategy | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Move `model` to this worker's device and, where there is more than one worker, wrap it.

    Args:
        model: the model, the same on every rank.
        move_to_device: True: to `get_device()`; False: leave it; a device: to that one.
        parallel_strategy: "ddp" keeps a replica on every rank, "fsdp" shards parameters over the ranks (GPUs only), None wraps nothing.
        parallel_strategy_kwargs: for `DistributedDataParallel` or `FullyShardedDataParallel`; they beat what syncline would choose.

    Raises:
        ValueError: an unknown `parallel_strategy`.
        TypeError: `model` is no module.
        RuntimeError: outside a training function; FSDP without GPUs.
    """
    session = get_session("torch.prepare_model")
    if not isinstance(model, nn.Module):
        raise TypeError(f"`prepare_model` wraps a `torch.nn.Module`, but `model` is a {type(model).__name__}: give it the module itself.")
    if parallel_strategy is not None and parallel_strategy not in get_args(ParallelStrategy):
        raise ValueError(f"`parallel_strategy={parallel_strategy!r}` is unknown: give 'ddp', 'fsdp', or None to wrap nothing.")
    device = move_to_device if isinstance(move_to_device, torch.device) else get_device()
    if parallel_strategy == "fsdp" and device.type == "cpu":
        raise RuntimeError(
            "`parallel_strategy='fsdp'` needs GPUs, but this worker trains on its CPU: set `ScalingConfig(use_gpu=True)`, or use 'ddp'."
        )
    if move_to_device is not False:
        model = model.to(device)
    cast_forward(model, device)
    if session.world_size == 1 or parallel_strategy is None:
        return model
    kwargs = dict(parallel_strategy_kwargs or {})
    return _ddp(model, device, kwargs) if parallel_strategy == "ddp" else _fsdp(model, device, kwargs)


def _ddp(model: nn.Module, device: torch.device, kwargs: dict[str, Any]) -> nn.Module:
    # `device_ids` is only valid for a model that lies on that one device.
    if device.type == "cuda" and {parameter.device for parameter in model.parameters()} == {device}:
        kwargs = {"device_ids": [device], "output_device": device, **kwargs}
    return DistributedDataParallel(model, **kwargs)


def _fsdp(model: nn.Module, device: torch.device, kwargs: dict[str, Any]) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel  # slow to import, and few programs need it

    return FullyShardedDataParallel(model, **{"device_id": device, **kwargs})
