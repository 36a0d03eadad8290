"""`prepare_model`: a model on the worker's device, wrapped for parallel training.

Covered: replicas (DDP), sharding (FSDP2; the work itself is in `fsdp`), tensor parallelism by a
plan, recomputed activations. Not covered: pipelines, and whatever else a program does itself inside
the training function, where every part of `torch.distributed` works.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syncline.train.session import get_session
from syncline.train.torch.amp import cast_forward
from syncline.train.torch.communication import meter
from syncline.train.torch.device import get_device
from syncline.train.torch.materialize import place
from syncline.train.torch.mesh import (
    check_mesh,
    data_dimensions,
    has_split_tensors,
    make_equal,
    parallelize_tensors,
)
from syncline.train.torch.units import find_units, recompute

ParallelStrategy = Literal["ddp", "fsdp"]


def prepare_model(
    model: nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: ParallelStrategy | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Move `model` to this worker's device and, where there is more than one worker, prepare it for
    parallel training.

    "ddp" wraps it in `DistributedDataParallel`: every rank has a replica, and all begin with rank
    0's. "fsdp" shards it in place with FSDP2 (`torch.distributed.fsdp.fully_shard`), on GPUs or
    CPUs: the model stays what it is, every rank keeps a part of its parameters, gradients and
    optimizer state, and make the optimizer afterwards. Its state dict then has `DTensor`s: save it
    with `torch.distributed.checkpoint`, each rank its part, which loads on any number of ranks.

    A model that was made on the meta device gets its memory here, with "fsdp" never more than one
    whole unit at a time, and its first values from its `init_weights()`, or else from the
    `reset_parameters()` of its modules.

    Args:
        model: the model, the same on every rank.
        move_to_device: True: to `get_device()`; False: leave it; a device: to that one.
        parallel_strategy: "ddp", "fsdp", or None to wrap nothing and ignore
            `parallel_strategy_kwargs`.
        parallel_strategy_kwargs: beat what syncline would choose. For both strategies:

            mesh: a `DeviceMesh`; its dimension "tp", if there is one, is for tensor parallelism,
            the others are for data. With "fsdp" two
                of these mean replicas of shards (the first replicates, the second shards).
            parallelize_plan: how tensors are split over "tp", for
            `torch.distributed.tensor.parallel.parallelize_module`; then only
                "fsdp" goes on to the other dimensions.
            activation_checkpointing: which submodules compute their activations again in the
            backward pass: True for the units, a set
                of classes, or a function from module to bool.

            For "ddp" whatever `DistributedDataParallel` takes. For "fsdp" what `fully_shard` takes
            (`reshard_after_forward`, `mp_policy`, also as a data type: "bfloat16";
            `offload_policy`, `ignored_params`, ...), FSDP1's options that have a counterpart, and:

            wrap: which submodules are units, whose parameters travel together: None for the
            repeated blocks, a set of classes, a
                function from module to bool, False for none; `auto_wrap_policy` takes the policies
                of FSDP1.
            sync_module_states: whether all ranks begin with rank 0's values (True).
            param_init_fn: gives a module of the meta device its first values.

    Raises:
        ValueError: an unknown `parallel_strategy`; options that cannot be meant.
        TypeError: `model` is no module.
        RuntimeError: outside a training function; "fsdp" with a PyTorch that has no FSDP2.
    """
    session = get_session("torch.prepare_model")
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"`prepare_model` wraps a `torch.nn.Module`, but `model` is a {type(model).__name__}: give it the module itself."
        )
    if parallel_strategy is not None and parallel_strategy not in get_args(ParallelStrategy):
        raise ValueError(
            f"`parallel_strategy={parallel_strategy!r}` is unknown: give 'ddp', 'fsdp', or None to wrap nothing."
        )
    device = move_to_device if isinstance(move_to_device, torch.device) else get_device()
    move = move_to_device is not False
    kwargs = dict(parallel_strategy_kwargs or {})
    if parallel_strategy == "fsdp":
        return _shard(model, device, kwargs, world_size=session.world_size, move=move)
    if move:
        model = place(model, device)
    cast_forward(model, device)
    return (
        model
        if parallel_strategy is None
        else _replicate(model, device, kwargs, session.world_size)
    )


def _replicate(
    model: nn.Module, device: torch.device, kwargs: dict[str, Any], world_size: int
) -> nn.Module:
    mesh = check_mesh(kwargs.pop("mesh")) if kwargs.get("mesh") is not None else None
    parallelize_tensors(model, mesh, kwargs.pop("parallelize_plan", None))
    policy = kwargs.pop("activation_checkpointing", False)
    recompute(model, find_units(model) if policy is True else [], policy)
    if mesh is not None:
        data = data_dimensions(mesh)
        world_size = 1 if data is None else data.size()
        if has_split_tensors(model):
            refuse_replicas_of_parts(world_size)
            make_equal(chain(model.parameters(), model.buffers()), mesh, device)
        elif data is not None and data.ndim > 1:
            raise ValueError(
                f"`mesh` has {data.ndim} dimensions for data ({', '.join(data.mesh_dim_names or ())}), but DDP replicates over one: give "
                "the mesh one, or use `parallel_strategy='fsdp'`."
            )
        elif data is not None:
            kwargs["process_group"] = data.get_group()
    if world_size == 1:
        return model
    # `device_ids` is only valid for a model that lies on that one device.
    if device.type == "cuda" and {parameter.device for parameter in model.parameters()} == {device}:
        kwargs = {"device_ids": [device], "output_device": device, **kwargs}
    replica = DistributedDataParallel(model, **kwargs)
    get_session("torch.prepare_model").communication_meters.append(meter(replica))
    return replica


def refuse_replicas_of_parts(replicas: int) -> None:
    """ValueError if tensors are split and there are several such models: DDP loses sight of split
    parameters after the first step.
    """
    if replicas > 1:
        raise ValueError(
            f"'ddp' cannot replicate a model whose tensors are split (here {replicas} times): PyTorch's DDP trains only whole tensors. Use "
            "`parallel_strategy='fsdp'`, which shards over the mesh's other dimension; to replicate without sharding give it the mesh "
            "`init_device_mesh(device_type, (replicas, 1, parts), mesh_dim_names=('replicate', 'shard', 'tp'))`."
        )


def _shard(
    model: nn.Module, device: torch.device, kwargs: dict[str, Any], *, world_size: int, move: bool
) -> nn.Module:
    try:
        from syncline.train.torch.fsdp import (
            shard,
        )  # torch takes most of a second to import it, and few programs need it
    except ImportError as error:
        raise RuntimeError(
            f"`parallel_strategy='fsdp'` uses FSDP2, but PyTorch {torch.__version__} has no `fully_shard` ({error}): "
            "install PyTorch 2.6 or newer, or use 'ddp'."
        ) from error
    return shard(model, device, kwargs, world_size=world_size, move=move)
