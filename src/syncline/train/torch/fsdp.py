"""Sharding a model over the ranks with FSDP2, `torch.distributed.fsdp.fully_shard`; on GPUs, and
with Gloo on CPUs.

A model is sharded unit by unit: a unit's tensors come to the device, all ranks get the first one's
values, each keeps its part. So a device never holds more than one whole unit beside the parts, also
with models made on the meta device.
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
from syncline.train.torch.materialize import Materializer, place
from syncline.train.torch.mesh import data_dimensions, make_equal, parallelize_tensors
from syncline.train.torch.units import find_units, find_units_of_fsdp1, recompute


def shard(
    model: nn.Module,
    device: torch.device,
    kwargs: Mapping[str, Any],
    *,
    world_size: int,
    move: bool,
) -> nn.Module:
    """`model`, sharded in place over the data dimensions of its mesh.

    A single rank shards nothing, unless the program asks for something that only a sharded model
    has (see `FsdpOptions.useful_alone`).

    Args:
        model: the model; its parameters become `DTensor`s.
        device: this rank's; on a GPU, the current one.
        kwargs: the program's `parallel_strategy_kwargs`.
        world_size: the number of ranks.
        move: whether tensors of the meta device get memory and values; others always come to the
            device.

    Raises:
        ValueError, TypeError: for `kwargs` that cannot be meant.
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
    if mesh is None and (world_size > 1 or options.useful_alone):
        mesh = init_device_mesh(device.type, (world_size,))
    parallelize_tensors(model, mesh, options.parallelize_plan)
    units = recompute(model, units, options.activation_checkpointing)
    data = None if mesh is None else data_dimensions(mesh)
    if mesh is None or data is None:
        model = place(model, device, options.param_init_fn) if move else model
        if mesh is not None and options.sync_module_states:
            make_equal(_tensors(model), mesh, device)
        return model
    if data.ndim > 2:
        raise ValueError(
            f"`mesh` has {data.ndim} dimensions for data ({', '.join(data.mesh_dim_names or ())}), but FSDP shards over one, or over the "
            "second of two and replicates over the first: make the mesh with one or two of them, beside 'tp'."
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
    materialize = Materializer(model, device, options.param_init_fn)
    settled: set[torch.Tensor] = set()
    passed_on = dict(options.passed_on)
    given = passed_on.pop("ignored_params", None) or set()
    for unit in units:
        if move:
            materialize(unit)
        ignored = {materialize.now(parameter) for parameter in given}
        fresh = [
            tensor for tensor in _tensors(unit) if tensor not in settled and not tensor.is_meta
        ]
        for tensor in fresh:
            _move(tensor, device)
        if options.sync_module_states:
            make_equal([tensor for tensor in fresh if tensor not in ignored], mesh, device)
        fully_shard(unit, mesh=data, ignored_params=ignored, **passed_on)
        settled.update(_tensors(unit))
    if move and materialize.finish() and options.sync_module_states:
        make_equal(_tensors(model), mesh, device)
    if options.buffer_dtype is not None:
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(options.buffer_dtype)


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return list(chain(module.parameters(), module.buffers()))


def _move(tensor: torch.Tensor, device: torch.device) -> None:
    if tensor.device != device:
        tensor.data = tensor.data.to(device)
