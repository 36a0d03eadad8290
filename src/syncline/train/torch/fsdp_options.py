"""`parallel_strategy_kwargs` for "fsdp": FSDP2's own, ours, and those of FSDP1 that mean something
here.

Pure apart from process groups of FSDP1, which become meshes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

from syncline.train.torch.materialize import Initializer
from syncline.train.torch.mesh import check_mesh
from syncline.train.torch.units import ModulePolicy

OWN = (
    "mesh",
    "parallelize_plan",
    "wrap",
    "auto_wrap_policy",
    "activation_checkpointing",
    "sync_module_states",
    "param_init_fn",
)
PASSED_ON = tuple(
    name
    for name in inspect.signature(fully_shard).parameters
    if name not in ("module", "mesh", "dp_mesh_dims")
)

ALWAYS = ("use_orig_params", "limit_all_gathers", "backward_prefetch")
"""What FSDP1 could be told, and FSDP2 always does."""

INSTEAD = {
    "device_id": "give the device to `prepare_model(move_to_device=...)`",
    "forward_prefetch": "call `set_modules_to_forward_prefetch` on the units of the prepared model",
    "dp_mesh_dims": "name the dimension for tensor parallelism 'tp'; all others of `mesh` are for data",
}


@dataclass(frozen=True, kw_only=True)
class FsdpOptions:
    """How a model is sharded.

    Raises:
        ValueError: options that contradict each other.
        TypeError: a mesh that is none.
    """

    mesh: DeviceMesh | None = None
    """The ranks; None: all in one dimension."""
    parallelize_plan: Any = None
    """How tensors are split over the mesh's dimension "tp", for `parallelize_module`."""
    wrap: ModulePolicy | bool | None = None
    """Which submodules are units; None: the repeated blocks."""
    auto_wrap_policy: Callable[..., bool] | None = None
    """The same as FSDP1's policies say it."""
    activation_checkpointing: ModulePolicy | bool = False
    """Which submodules are recomputed in the backward pass; True: the units."""
    sync_module_states: bool = True
    """Whether all ranks begin with the first one's values."""
    param_init_fn: Initializer | None = None
    """Gives a module of the meta device its first values."""
    buffer_dtype: torch.dtype | None = None
    """What buffers of floating point numbers are cast to."""
    passed_on: Mapping[str, Any] = field(default_factory=dict)
    """What `fully_shard` gets for every unit."""

    def __post_init__(self) -> None:
        if self.wrap is not None and self.auto_wrap_policy is not None:
            raise ValueError(
                "`wrap` and `auto_wrap_policy` both choose the units: give one of them."
            )
        if self.mesh is not None:
            check_mesh(self.mesh)

    @property
    def useful_alone(self) -> bool:
        """Whether sharding does what was asked for on a single rank too."""
        return self.mesh is not None or any(
            name in self.passed_on for name in ("mp_policy", "offload_policy")
        )


def parse(kwargs: Mapping[str, Any], device_type: str) -> FsdpOptions:
    """Check and translate what the program gave.

    Raises:
        ValueError: an unknown name; one of FSDP1's that FSDP2 has no counterpart for (the message
        says what to do); a name twice, once
            in FSDP1's form and once in FSDP2's.
        TypeError: a value of the wrong kind.
    """
    given = {name: value for name, value in kwargs.items() if name not in ALWAYS}
    for name, instead in INSTEAD.items():
        if name in given:
            raise ValueError(
                f"`parallel_strategy_kwargs` has `{name}`, which FSDP2 (`fully_shard`) does not take: {instead}."
            )
    for name, translate in TRANSLATIONS.items():
        if name not in given:
            continue
        value = given.pop(name)
        for counterpart, translated in (
            {} if value is None else translate(value, device_type)
        ).items():
            if counterpart in given:
                raise ValueError(
                    f"`parallel_strategy_kwargs` has `{name}` and `{counterpart}`, which mean the same: give `{counterpart}`."
                )
            given[counterpart] = translated
    unknown = set(given) - {*OWN, *PASSED_ON, "buffer_dtype"}
    if unknown:
        raise ValueError(
            f"`parallel_strategy_kwargs` has {', '.join(f'`{name}`' for name in sorted(unknown))}, but 'fsdp' takes only "
            f"{', '.join((*OWN, *PASSED_ON))}."
        )
    if "mp_policy" in given:
        given["mp_policy"] = precision(given["mp_policy"])
    passed_on = {name: given.pop(name) for name in PASSED_ON if name in given}
    return FsdpOptions(**given, passed_on=passed_on)


def precision(policy: MixedPrecisionPolicy | torch.dtype | str) -> MixedPrecisionPolicy:
    """A policy; a data type stands for computing in it and adding gradients in float32.

    ValueError or TypeError: neither.
    """
    if isinstance(policy, MixedPrecisionPolicy):
        return policy
    dtype = getattr(torch, policy, None) if isinstance(policy, str) else policy
    if not isinstance(dtype, torch.dtype):
        raise (ValueError if isinstance(policy, str) else TypeError)(
            f"`mp_policy={policy!r}` is no precision: give 'bfloat16', another data type of torch's, or a `MixedPrecisionPolicy`."
        )
    return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)


def _sharding_strategy(strategy: Any, _: str) -> dict[str, Any]:
    name = strategy if isinstance(strategy, str) else getattr(strategy, "name", repr(strategy))
    if name == "FULL_SHARD":
        return {}
    if name == "SHARD_GRAD_OP":
        return {"reshard_after_forward": False}
    if name == "NO_SHARD":
        raise ValueError(
            "`sharding_strategy=NO_SHARD` shards nothing: give `prepare_model(parallel_strategy='ddp')`."
        )
    raise ValueError(
        f"`sharding_strategy={name}` is not one of FULL_SHARD, SHARD_GRAD_OP and NO_SHARD: for hybrid sharding give a mesh of two "
        "dimensions, `mesh=init_device_mesh(device_type, (replicas, shards), mesh_dim_names=('replicate', 'shard'))`."
    )


def _mixed_precision(policy: Any, _: str) -> dict[str, Any]:
    if getattr(policy, "keep_low_precision_grads", False):
        raise ValueError(
            "`mixed_precision` asks for `keep_low_precision_grads`, but FSDP2 keeps gradients in the parameters' own type: give the model "
            "that type, `model.to(torch.bfloat16)`."
        )
    if not hasattr(policy, "cast_root_forward_inputs"):
        return {"mp_policy": policy}
    cast = policy.cast_forward_inputs or policy.cast_root_forward_inputs
    translated = MixedPrecisionPolicy(
        param_dtype=policy.param_dtype, reduce_dtype=policy.reduce_dtype, cast_forward_inputs=cast
    )
    return {"mp_policy": translated, "buffer_dtype": policy.buffer_dtype}


def _cpu_offload(offload: Any, _: str) -> dict[str, Any]:
    return (
        {"offload_policy": CPUOffloadPolicy()}
        if getattr(offload, "offload_params", offload)
        else {}
    )


def _ignored(states: Any, _: str) -> dict[str, Any]:
    parameters = [
        [state] if isinstance(state, nn.Parameter) else state.parameters() for state in states
    ]
    return {"ignored_params": {parameter for group in parameters for parameter in group}}


def _process_group(group: Any, device_type: str) -> dict[str, Any]:
    if not isinstance(group, dist.ProcessGroup):
        raise ValueError(
            "`process_group` with several groups asks for hybrid sharding: give a mesh of two dimensions, "
            "`mesh=init_device_mesh(device_type, (replicas, shards), mesh_dim_names=('replicate', 'shard'))`."
        )
    return {"mesh": DeviceMesh.from_group(group, device_type)}


TRANSLATIONS: Mapping[str, Callable[[Any, str], dict[str, Any]]] = {
    "sharding_strategy": _sharding_strategy,
    "mixed_precision": _mixed_precision,
    "cpu_offload": _cpu_offload,
    "ignored_modules": _ignored,
    "ignored_states": _ignored,
    "device_mesh": lambda mesh, _: {"mesh": mesh},
    "process_group": _process_group,
}
"""FSDP1's options, and what they are in FSDP2's words."""
