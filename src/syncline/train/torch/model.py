"""`prepare_model`: a model on the worker's device, wrapped for parallel training.

Covered: replicas (DDP), sharding (FSDP2, implemented in `fsdp`), tensor parallelism by a plan,
activation checkpointing, and metering of the communication of DDP. Not covered: pipeline
parallelism. A training function may also use all of `torch.distributed` directly.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syncline.train.session import get_session
from syncline.train.torch.amp import cast_forward, scaler_of
from syncline.train.torch.automatic_snapshots import follow_model
from syncline.train.torch.device import get_device
from syncline.train.torch.fsdp_units import find_units, recompute
from syncline.train.torch.input_check import follow_inputs
from syncline.train.torch.mesh import (
    broadcast_values,
    check_mesh,
    data_dimensions,
    has_split_tensors,
    parallelize_tensors,
)
from syncline.train.torch.meta_init import place

ParallelStrategy = Literal["ddp", "fsdp"]


def prepare_model(
    model: nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: ParallelStrategy | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Move `model` to this worker's device and, with more than one worker, prepare it for parallel
    training.

    "ddp" wraps it in `DistributedDataParallel`: every rank has a replica, and all start with rank
    0's values. "fsdp" shards it in place with FSDP2 (`torch.distributed.fsdp.fully_shard`), on GPUs
    or CPUs: the model keeps its type, and every rank keeps a shard of its parameters, gradients and
    optimizer state. Create the optimizer afterwards. The state dict then has `DTensor`s: save it
    with `torch.distributed.checkpoint`, which writes a shard per rank and loads on any number of
    ranks.

    A model created on the meta device is allocated here (with "fsdp" one unit at a time) and
    initialized by its `init_weights()`, or by the `reset_parameters()` of its modules.

    Args:
        model: Model, the same on every rank.
        move_to_device: True for `get_device()`, False to leave the model, or a device.
        parallel_strategy: "ddp", "fsdp", or None to wrap nothing and ignore
            `parallel_strategy_kwargs`.
        parallel_strategy_kwargs: Options that override the defaults.

            Options of both strategies:

            - `mesh`: `DeviceMesh`. Its dimension "tp", if any, is for tensor parallelism, the
              others are for data. With "fsdp", the first of two data dimensions replicates and the
              second shards.
            - `parallelize_plan`: Plan that splits tensors over "tp", for
              `torch.distributed.tensor.parallel.parallelize_module`. Only "fsdp" can then use
              further ranks for data.
            - `activation_checkpointing`: Submodules whose activations are recomputed in the
              backward pass: True for the units, a set of classes, or a function from module to
              bool.

            For "ddp": the arguments of `DistributedDataParallel`.

            For "fsdp": the arguments of `fully_shard` (`reshard_after_forward`, `offload_policy`,
            `ignored_params`, `mp_policy`, also as a data type such as "bfloat16"), options of FSDP1
            that have a counterpart, and:

            - `wrap`: Submodules that are units, whose parameters are gathered together: None for
              the repeated blocks, a set of classes, a function from module to bool, or False for
              none. `auto_wrap_policy` takes policies of FSDP1.
            - `sync_module_states`: Start all ranks with rank 0's values (default True).
            - `param_init_fn`: Initializes a module of the meta device.

    Raises:
        ValueError: Unknown `parallel_strategy` or invalid options.
        TypeError: `model` is not a module.
        RuntimeError: Called outside a training function, or "fsdp" with a PyTorch without FSDP2.
    """
    session = get_session("torch.prepare_model")
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"`prepare_model` wraps a `torch.nn.Module`, but `model` is a {type(model).__name__}: "
            "pass the module itself."
        )
    if parallel_strategy is not None and parallel_strategy not in get_args(ParallelStrategy):
        raise ValueError(
            f"`parallel_strategy={parallel_strategy!r}` is unknown: use 'ddp', 'fsdp', or None to "
            "wrap nothing."
        )
    device = move_to_device if isinstance(move_to_device, torch.device) else get_device()
    move = move_to_device is not False
    kwargs = dict(parallel_strategy_kwargs or {})
    prepared = _prepared(model, device, parallel_strategy, kwargs, session.world_size, move=move)
    follow_model(prepared, session, scaler_of(session))
    session.follow_inputs(follow_inputs(prepared))
    return prepared


def _prepared(
    model: nn.Module,
    device: torch.device,
    strategy: ParallelStrategy | None,
    kwargs: dict[str, Any],
    world_size: int,
    *,
    move: bool,
) -> nn.Module:
    if strategy == "fsdp":
        return _shard(model, device, kwargs, world_size=world_size, move=move)
    if move:
        model = place(model, device)
    cast_forward(model, device)
    return model if strategy is None else _replicate(model, device, kwargs, world_size)


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
            refuse_split_replicas(world_size)
            broadcast_values(chain(model.parameters(), model.buffers()), mesh, device)
        elif data is not None and data.ndim > 1:
            raise ValueError(
                f"`mesh` has {data.ndim} dimensions for data "
                f"({', '.join(data.mesh_dim_names or ())}), but DDP replicates over one: use a "
                "mesh with one, or `parallel_strategy='fsdp'`."
            )
        elif data is not None:
            kwargs["process_group"] = data.get_group()
    if world_size == 1:
        return model
    if device.type == "mps":
        raise ValueError(
            f"{world_size} workers cannot train one model on MPS devices, because "
            "torch.distributed has no backend for them: use num_workers=1, or use_gpu=False to "
            "train on CPUs."
        )
    # `device_ids` is valid only for a model that is on that one device.
    if device.type == "cuda" and {parameter.device for parameter in model.parameters()} == {device}:
        kwargs = {"device_ids": [device], "output_device": device, **kwargs}
    replica = DistributedDataParallel(model, **kwargs)
    if device.type != "cpu":  # there, the samples of the training thread show it
        get_session("torch.prepare_model").communication_meters.append(communication_meter(replica))
    return replica


def refuse_split_replicas(replicas: int) -> None:
    """Refuse several replicas of a model with split tensors.

    DDP no longer recognizes split parameters after the first step.

    Raises:
        ValueError: There are several replicas.
    """
    if replicas > 1:
        raise ValueError(
            f"'ddp' cannot replicate a model whose tensors are split ({replicas} replicas): "
            "PyTorch's DDP trains whole tensors only. Use `parallel_strategy='fsdp'`, which shards "
            "over the other mesh dimension. To replicate without sharding, pass it the mesh "
            "`init_device_mesh(device_type, (replicas, 1, parts), "
            "mesh_dim_names=('replicate', 'shard', 'tp'))`."
        )


def _shard(
    model: nn.Module, device: torch.device, kwargs: dict[str, Any], *, world_size: int, move: bool
) -> nn.Module:
    try:
        # Takes most of a second to import, and few programs need it.
        from syncline.train.torch.fsdp import shard
    except ImportError as error:
        raise RuntimeError(
            f"`parallel_strategy='fsdp'` uses FSDP2, but PyTorch {torch.__version__} has no "
            f"`fully_shard` ({error}): install PyTorch 2.6 or newer, or use 'ddp'."
        ) from error
    return shard(model, device, kwargs, world_size=world_size, move=move)


class _IterationCount:
    """Forward hook that counts the calls of a model that a backward pass may follow.

    A class rather than a closure, so that the model can be pickled.
    """

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, model: nn.Module, inputs: object) -> None:
        self.count += torch.is_grad_enabled()


def communication_meter(model: DistributedDataParallel) -> Callable[[], float]:
    """Return a function for the seconds spent so far on gradient reduction that the backward pass
    did not hide. It does not keep the model alive.

    Torch measures the first ten iterations, then every hundredth. Their mean is multiplied by the
    number of iterations.
    """
    known, iterations = weakref.ref(model), _IterationCount()
    model.register_forward_pre_hook(iterations)

    def exposed_s() -> float:
        model = known()
        if model is None:
            return 0.0
        measured: dict[str, float] = model._get_ddp_logging_data()  # type: ignore[no-untyped-call]
        exposed_ns = measured.get("avg_backward_comm_time", 0) - measured.get(
            "avg_backward_compute_comm_overlap_time", 0
        )
        return max(0.0, exposed_ns / 1e9) * iterations.count

    return exposed_s
