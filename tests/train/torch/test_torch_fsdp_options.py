"""Options of "fsdp": those of FSDP2, additional ones, and translated ones of FSDP1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    CPUOffloadPolicy,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
)

from syncline.train.torch.fsdp_options import parse

BFLOAT16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def passed_on(**kwargs: Any) -> dict[str, Any]:
    return dict(parse(kwargs, "cpu").passed_on)


def test_arguments_of_fully_shard_are_passed_on() -> None:
    options = parse(
        {"reshard_after_forward": 2, "wrap": {nn.Linear}, "activation_checkpointing": True}, "cpu"
    )
    assert options.passed_on == {"reshard_after_forward": 2}
    assert (options.wrap, options.activation_checkpointing, options.sync_module_states) == (
        {nn.Linear},
        True,
        True,
    )
    assert not options.affects_single_rank


@pytest.mark.parametrize("given", ["bfloat16", torch.bfloat16, BFLOAT16])
def test_precision_is_policy_or_data_type(given: Any) -> None:
    assert passed_on(mp_policy=given) == {"mp_policy": BFLOAT16}
    assert passed_on(mixed_precision=given) == {"mp_policy": BFLOAT16}
    assert parse({"mp_policy": given}, "cpu").affects_single_rank


@pytest.mark.parametrize(
    ("given", "error"), [("bf17", ValueError), ("nn", ValueError), (16, TypeError)]
)
def test_invalid_precision_is_refused(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="is not a precision: pass 'bfloat16'"):
        parse({"mp_policy": given}, "cpu")


def test_options_of_fsdp1_are_translated() -> None:
    assert (
        passed_on(
            sharding_strategy=ShardingStrategy.FULL_SHARD,
            use_orig_params=True,
            limit_all_gathers=True,
        )
        == {}
    )
    assert passed_on(sharding_strategy="SHARD_GRAD_OP") == {"reshard_after_forward": False}
    assert passed_on(cpu_offload=CPUOffload(offload_params=True)) == {
        "offload_policy": CPUOffloadPolicy()
    }
    assert passed_on(cpu_offload=CPUOffload(offload_params=False)) == {}
    assert (
        passed_on(
            cpu_offload=None, mixed_precision=None, backward_prefetch=BackwardPrefetch.BACKWARD_PRE
        )
        == {}
    )
    layers = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    assert passed_on(ignored_modules=[layers[0]]) == {"ignored_params": set(layers[0].parameters())}
    assert passed_on(ignored_states=[layers[0].bias]) == {"ignored_params": {layers[0].bias}}


def test_mixed_precision_of_fsdp1_becomes_policy_and_buffer_dtype() -> None:
    low = torch.bfloat16
    options = parse(
        {"mixed_precision": MixedPrecision(param_dtype=low, reduce_dtype=low, buffer_dtype=low)},
        "cpu",
    )
    assert options.passed_on == {
        "mp_policy": MixedPrecisionPolicy(param_dtype=low, reduce_dtype=low)
    }
    assert options.buffer_dtype is low


@pytest.mark.parametrize(
    ("kwargs", "counterpart"),
    [
        ({"sharding_strategy": ShardingStrategy.NO_SHARD}, "parallel_strategy='ddp'"),
        (
            {"sharding_strategy": ShardingStrategy.HYBRID_SHARD},
            r"mesh=init_device_mesh\(device_type, \(replicas, shards\)",
        ),
        ({"sharding_strategy": "ZERO"}, "FULL_SHARD, SHARD_GRAD_OP and NO_SHARD"),
        ({"device_id": 0}, "move_to_device"),
        ({"forward_prefetch": True}, "set_modules_to_forward_prefetch"),
        ({"process_group": (1, 2)}, "a mesh of two dimensions"),
        (
            {"mixed_precision": MixedPrecision(keep_low_precision_grads=True)},
            r"model.to\(torch.bfloat16\)",
        ),
        ({"mixed_precision": MixedPrecision(), "mp_policy": "bfloat16"}, "pass only `mp_policy`"),
        ({"wrap": {nn.Linear}, "auto_wrap_policy": len}, "`wrap` and `auto_wrap_policy`"),
        ({"find_unused_parameters": True}, "`find_unused_parameters`, but 'fsdp' takes only mesh"),
    ],
)
def test_untranslatable_options_are_refused_with_remedy(
    kwargs: dict[str, Any], counterpart: str
) -> None:
    with pytest.raises(ValueError, match=counterpart):
        parse(kwargs, "cpu")


@pytest.mark.usefixtures("group")
def test_process_group_becomes_mesh() -> None:
    mesh = parse({"process_group": dist.group.WORLD}, "cpu").mesh
    assert isinstance(mesh, DeviceMesh)
    assert (mesh.size(), mesh.device_type) == (1, "cpu")
    assert parse({"device_mesh": mesh}, "cpu").mesh is mesh


@pytest.mark.usefixtures("group")
def test_mesh_needs_dimension_names() -> None:
    with pytest.raises(TypeError, match="`mesh` is a tuple"):
        parse({"mesh": (2, 2)}, "cpu")
    with pytest.raises(ValueError, match="2 dimensions without names"):
        parse({"mesh": init_device_mesh("cpu", (1, 1))}, "cpu")
