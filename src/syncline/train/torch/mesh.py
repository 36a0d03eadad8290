"""Device meshes: dimensions for data and for tensor parallelism, and broadcasts over them.

Meshes are torch's `DeviceMesh`, created with `torch.distributed.device_mesh.init_device_mesh`. The
dimension named "tp" is for tensor parallelism. All others are for data, whatever their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

TENSOR_DIMENSION = "tp"


def check_mesh(mesh: object) -> DeviceMesh:
    """Return `mesh`.

    Raises:
        TypeError: It is not a `DeviceMesh`.
        ValueError: It has several dimensions without names.
    """
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(
            f"`mesh` is a {type(mesh).__name__}: pass a `DeviceMesh`, created with "
            "`torch.distributed.device_mesh.init_device_mesh`."
        )
    if mesh.ndim > 1 and mesh.mesh_dim_names is None:
        raise ValueError(
            f"`mesh` has {mesh.ndim} dimensions without names, so their purpose is unknown: use "
            "`init_device_mesh(..., mesh_dim_names=('dp', 'tp'))`; 'tp' is for tensor parallelism, "
            "the others are for data."
        )
    return mesh


def data_dimensions(mesh: DeviceMesh) -> DeviceMesh | None:
    """Return `mesh` without its dimension "tp"; None if there is no other."""
    names = mesh.mesh_dim_names or ()
    data = tuple(name for name in names if name != TENSOR_DIMENSION)
    if len(data) == len(names):
        return mesh
    return mesh[data] if data else None


def parallelize_tensors(
    model: nn.Module, mesh: DeviceMesh | None, plan: ParallelStyle | dict[str, ParallelStyle] | None
) -> None:
    """Split a model's tensors in place over the mesh dimension "tp" with `parallelize_module`.

    Raises:
        ValueError: There is a plan but no such dimension, or such a dimension but neither a plan
            nor split tensors.
    """
    dimension = mesh is not None and TENSOR_DIMENSION in (mesh.mesh_dim_names or ())
    if plan is not None:
        if mesh is None or not dimension:
            raise ValueError(
                "`parallelize_plan` needs ranks to split tensors over: pass `mesh` with a "
                "dimension named 'tp', `init_device_mesh(device_type, (data, tensor), "
                "mesh_dim_names=('dp', 'tp'))`."
            )
        # Slow to import, and few programs need it.
        from torch.distributed.tensor.parallel import parallelize_module

        parallelize_module(model, mesh[TENSOR_DIMENSION], plan)
    elif (
        mesh is not None
        and dimension
        and mesh[TENSOR_DIMENSION].size() > 1
        and not has_split_tensors(model)
    ):
        raise ValueError(
            f"`mesh` has {mesh[TENSOR_DIMENSION].size()} ranks in its dimension 'tp', but no plan "
            "splits tensors over them, so all would do the same work: pass `parallelize_plan`, or "
            "call `parallelize_module` before `prepare_model`."
        )


def has_split_tensors(model: nn.Module) -> bool:
    """Return True if a parameter is a `DTensor`."""
    from torch.distributed.tensor import DTensor

    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def broadcast_values(
    tensors: Iterable[torch.Tensor], mesh: DeviceMesh, device: torch.device
) -> None:
    """Give ranks that hold the same shard of a tensor the values of the first of them. All ranks of
    `mesh` must call this.

    Args:
        tensors: Whole tensors and `DTensor`s, on `device` or on the CPU; changed in place.
        mesh: The ranks.
        device: Device from which the mesh's groups exchange tensors.
    """
    groups = [mesh.get_group(dimension) for dimension in range(mesh.ndim)]
    for tensor in tensors:
        local, split_over = _local_shard(tensor)
        exchanged = local.to(device)
        # After a broadcast over each dimension in turn, all ranks have the values of the first.
        for group in groups:
            if group.size() > 1 and tuple(dist.get_process_group_ranks(group)) not in split_over:
                dist.broadcast(exchanged, group=group, group_src=0)
        if exchanged is not local:
            local.copy_(exchanged)


def _local_shard(tensor: torch.Tensor) -> tuple[torch.Tensor, set[tuple[int, ...]]]:
    """Return this rank's shard of a tensor, and the groups of ranks that it is split over.

    Groups are identified by their ranks: torch may give a tensor an equal mesh created earlier,
    with other groups.
    """
    from torch.distributed.tensor import DTensor

    if not isinstance(tensor, DTensor):
        return tensor.detach(), set()
    mesh = tensor.device_mesh
    split = [
        mesh.get_group(number)
        for number, placement in enumerate(tensor.placements)
        if not placement.is_replicate()
    ]
    return tensor.to_local().detach(), {
        tuple(dist.get_process_group_ranks(group)) for group in split
    }
