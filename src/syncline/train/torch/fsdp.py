"""Sharding of a model over the ranks with FSDP2 (`torch.distributed.fsdp.fully_shard`), on GPUs or,
with Gloo, on CPUs.

A model is sharded one unit after the other: the unit's tensors are moved to the device, rank 0's
values are broadcast, and each rank keeps its shard. A device therefore holds at most one whole unit
beside the shards, also for models created on the meta device.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from syncline.train.torch.amp import cast_forward
from syncline.train.torch.fsdp_options import FsdpOptions, parse
from syncline.train.torch.fsdp_units import find_units, find_units_of_fsdp1, recompute
from syncline.train.torch.mesh import broadcast_values, data_dimensions, parallelize_tensors
from syncline.train.torch.meta_init import MetaInitializer, place


def shard(
    model: nn.Module,
    device: torch.device,
    kwargs: Mapping[str, Any],
    *,
    world_size: int,
    move: bool,
) -> nn.Module:
    """Shard `model` in place over the data dimensions of its mesh, and return it.

    A single rank shards nothing unless the options have an effect there (see
    `FsdpOptions.affects_single_rank`).

    Args:
        model: Model; its parameters become `DTensor`s.
        device: Device of this rank; a GPU must be the current device.
        kwargs: The program's `parallel_strategy_kwargs`.
        world_size: Number of ranks.
        move: Allocate and initialize tensors of the meta device. Other tensors are always moved
            to the device.

    Raises:
        ValueError, TypeError: Invalid `kwargs`.
    """
    options = parse(kwargs, device.type)
    if "mp_policy" not in options.passed_on:
        cast_forward(model, device)
    units = (
        find_units_of_fsdp1(model, options.auto_wrap_policy)
        if options.auto_wrap_policy
        else find_units(model, options.wrap)
    )
    mesh = options.mesh
    if mesh is None and (world_size > 1 or options.affects_single_rank):
        mesh = init_device_mesh(device.type, (world_size,))
    parallelize_tensors(model, mesh, options.parallelize_plan)
    units = recompute(model, units, options.activation_checkpointing)
    data = None if mesh is None else data_dimensions(mesh)
    if mesh is None or data is None:
        model = place(model, device, options.param_init_fn) if move else model
        if mesh is not None and options.sync_module_states:
            broadcast_values(_tensors(model), mesh, device)
        return model
    if data.ndim > 2:
        raise ValueError(
            f"`mesh` has {data.ndim} dimensions for data ({', '.join(data.mesh_dim_names or ())}), "
            "but FSDP shards over one dimension, or replicates over the first and shards over the "
            "second of two: create the mesh with one or two of them, beside 'tp'."
        )
    _shard_units(model, [*units, model], device, mesh, data, options, move=move)
    return model


def _shard_units(
    model: nn.Module,
    units: list[nn.Module],
    device: torch.device,
    mesh: DeviceMesh,
    data: DeviceMesh,
    options: FsdpOptions,
    *,
    move: bool,
) -> None:
    initializer = MetaInitializer(model, device, options.param_init_fn)
    initialized: set[torch.Tensor] = set()
    passed_on = dict(options.passed_on)
    ignored_params = passed_on.pop("ignored_params", None) or set()
    for unit in units:
        if move:
            initializer(unit)
        ignored = {initializer.counterpart(parameter) for parameter in ignored_params}
        new = [
            tensor for tensor in _tensors(unit) if tensor not in initialized and not tensor.is_meta
        ]
        for tensor in new:
            if tensor.device != device:
                tensor.data = tensor.data.to(device)
        if options.sync_module_states:
            broadcast_values([tensor for tensor in new if tensor not in ignored], mesh, device)
        fully_shard(unit, mesh=data, ignored_params=ignored, **passed_on)
        initialized.update(_tensors(unit))
    if move and initializer.finish() and options.sync_module_states:
        broadcast_values(_tensors(model), mesh, device)
    if options.buffer_dtype is not None:
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(options.buffer_dtype)


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return list(chain(module.parameters(), module.buffers()))
