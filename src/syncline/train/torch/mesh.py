"""Device meshes: which dimension is for tensor parallelism, which are for data, and equal
beginnings on all of their ranks.

Meshes are torch's own `DeviceMesh`, made with `torch.distributed.device_mesh.init_device_mesh`. The
dimension named "tp" is for tensor parallelism; the others, whatever their names, are for data.
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
    """`mesh`. TypeError: it is none. ValueError: several dimensions without names."""
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(
            f"`mesh` is a {type(mesh).__name__}: give a `DeviceMesh`, made with `torch.distributed.device_mesh.init_device_mesh`."
        )
    if mesh.ndim > 1 and mesh.mesh_dim_names is None:
        raise ValueError(
            f"`mesh` has {mesh.ndim} dimensions without names, so it does not say which of them is for what: give "
            "`init_device_mesh(..., mesh_dim_names=('dp', 'tp'))`; 'tp' is for tensor parallelism, the others are for data."
        )
    return mesh


def data_dimensions(mesh: DeviceMesh) -> DeviceMesh | None:
    """`mesh` without its dimension for tensor parallelism; None if that is the only one."""
    names = mesh.mesh_dim_names or ()
    data = tuple(name for name in names if name != TENSOR_DIMENSION)
    if len(data) == len(names):
        return mesh
    return mesh[data] if data else None


def parallelize_tensors(
    model: nn.Module, mesh: DeviceMesh | None, plan: ParallelStyle | dict[str, ParallelStyle] | None
) -> None:
    """Split a model's tensors over the mesh's dimension "tp", as torch's `parallelize_module` does;
    in place.

    Raises:
        ValueError: a plan without that dimension; that dimension without a plan, for a model that
        is not split already.
    """
    dimension = mesh is not None and TENSOR_DIMENSION in (mesh.mesh_dim_names or ())
    if plan is not None:
        if mesh is None or not dimension:
            raise ValueError(
                "`parallelize_plan` needs the ranks that tensors are split over: give `mesh` with a dimension named 'tp', "
                "`init_device_mesh(device_type, (data, tensor), mesh_dim_names=('dp', 'tp'))`."
            )
        from torch.distributed.tensor.parallel import (
            parallelize_module,
        )  # slow to import, and few programs need it

        parallelize_module(model, mesh[TENSOR_DIMENSION], plan)
    elif (
        mesh is not None
        and dimension
        and mesh[TENSOR_DIMENSION].size() > 1
        and not has_split_tensors(model)
    ):
        raise ValueError(
            f"`mesh` has {mesh[TENSOR_DIMENSION].size()} ranks in its dimension 'tp', but nothing says how tensors are split over them, so "
            "they would all do the same work: give `parallelize_plan`, or use `parallelize_module` before `prepare_model`."
        )


def has_split_tensors(model: nn.Module) -> bool:
    """Whether a parameter is a `DTensor`."""
    from torch.distributed.tensor import DTensor

    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def make_equal(tensors: Iterable[torch.Tensor], mesh: DeviceMesh, device: torch.device) -> None:
    """Give the ranks that hold the same part of a tensor the values of the first of them; all ranks
    of `mesh` call this at once.

    Args:
        tensors: whole ones and `DTensor`s, on `device` or on the CPU; changed in place.
        mesh: the ranks.
        device: what the mesh's groups exchange tensors from.
    """
    groups = [mesh.get_group(dimension) for dimension in range(mesh.ndim)]
    for tensor in tensors:
        local, split_over = _local_part(tensor)
        exchanged = local.to(device)
        # One dimension after the other: afterwards every rank has what the mesh's first one had.
        for group in groups:
            if group.size() > 1 and tuple(dist.get_process_group_ranks(group)) not in split_over:
                dist.broadcast(exchanged, group=group, group_src=0)
        if exchanged is not local:
            local.copy_(exchanged)


def _local_part(tensor: torch.Tensor) -> tuple[torch.Tensor, set[tuple[int, ...]]]:
    """This rank's part of a tensor, and the groups of ranks that it is split over.

    Groups are known by their ranks: torch may hand a tensor an equal mesh made earlier, with groups
    of its own.
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
