"""`parallel_strategy_kwargs` for "fsdp": options of FSDP2, further ones, and options of FSDP1 that
have a counterpart in FSDP2.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

from syncline.suggestions import did_you_mean
from syncline.train.torch.fsdp_units import ModulePolicy
from syncline.train.torch.mesh import check_mesh
from syncline.train.torch.meta_init import Initializer

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

_HYBRID_MESH = (
    "`mesh=init_device_mesh(device_type, (replicas, shards), "
    "mesh_dim_names=('replicate', 'shard'))`"
)
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
"""Options of FSDP1 for behaviour that FSDP2 always has."""

REPLACEMENTS = {
    "device_id": "pass the device to `prepare_model(move_to_device=...)`",
    "forward_prefetch": "call `set_modules_to_forward_prefetch` on the units of the prepared model",
    "dp_mesh_dims": "name the dimension for tensor parallelism 'tp'; all other dimensions of "
    "`mesh` are for data",
}
"""Remedies for options that FSDP2 does not have."""


@dataclass(frozen=True, kw_only=True)
class FsdpOptions:
    """Sharding of a model.

    Raises:
        ValueError: Contradictory options.
        TypeError: `mesh` is not a mesh.
    """

    mesh: DeviceMesh | None = None
    """Mesh of the ranks; None for all ranks in one dimension."""
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None
    """Plan for `parallelize_module` over the mesh dimension "tp"."""
    wrap: ModulePolicy | bool | None = None
    """Policy that selects the units; None for the repeated blocks."""
    auto_wrap_policy: Callable[..., bool] | None = None
    """Wrapping policy of FSDP1, instead of `wrap`."""
    activation_checkpointing: ModulePolicy | bool = False
    """Submodules to recompute in the backward pass; True for the units."""
    sync_module_states: bool = True
    """Start all ranks with rank 0's values."""
    param_init_fn: Initializer | None = None
    """Initializes modules that were created on the meta device."""
    buffer_dtype: torch.dtype | None = None
    """Data type of floating-point buffers; None to keep it."""
    passed_on: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `fully_shard` for every unit."""

    def __post_init__(self) -> None:
        if self.wrap is not None and self.auto_wrap_policy is not None:
            raise ValueError(
                "`wrap` and `auto_wrap_policy` both select the units: pass one of them."
            )
        if self.mesh is not None:
            check_mesh(self.mesh)

    @property
    def affects_single_rank(self) -> bool:
        """True if the options have an effect even without other ranks."""
        return self.mesh is not None or any(
            name in self.passed_on for name in ("mp_policy", "offload_policy")
        )


def parse(kwargs: Mapping[str, Any], device_type: str) -> FsdpOptions:
    """Check the program's options and translate those of FSDP1.

    Raises:
        ValueError: An unknown option, an option of FSDP1 without a counterpart, or the same option
            in the forms of both.
        TypeError: A value of the wrong type.
    """
    given = {name: value for name, value in kwargs.items() if name not in ALWAYS}
    for name, remedy in REPLACEMENTS.items():
        if name in given:
            raise ValueError(
                f"`parallel_strategy_kwargs` has `{name}`, which FSDP2 (`fully_shard`) does not "
                f"have: {remedy}."
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
                    f"`parallel_strategy_kwargs` has `{name}` and `{counterpart}`, which mean the "
                    f"same: pass only `{counterpart}`."
                )
            given[counterpart] = translated
    unknown = set(given) - {*OWN, *PASSED_ON, "buffer_dtype"}
    if unknown:
        raise ValueError(
            f"`parallel_strategy_kwargs` has {', '.join(f'`{name}`' for name in sorted(unknown))}, "
            f"but 'fsdp' takes only {', '.join((*OWN, *PASSED_ON))}."
            f"{did_you_mean(min(unknown), (*OWN, *PASSED_ON, *TRANSLATIONS))}"
        )
    if "mp_policy" in given:
        given["mp_policy"] = precision(given["mp_policy"])
    passed_on = {name: given.pop(name) for name in PASSED_ON if name in given}
    return FsdpOptions(**given, passed_on=passed_on)


def precision(policy: MixedPrecisionPolicy | torch.dtype | str) -> MixedPrecisionPolicy:
    """Return a policy; a data type means computation in it and reduction in float32.

    Raises:
        ValueError: An unknown name of a data type.
        TypeError: Neither a policy nor a data type.
    """
    if isinstance(policy, MixedPrecisionPolicy):
        return policy
    dtype = getattr(torch, policy, None) if isinstance(policy, str) else policy
    if not isinstance(dtype, torch.dtype):
        raise (ValueError if isinstance(policy, str) else TypeError)(
            f"`mp_policy={policy!r}` is not a precision: pass 'bfloat16', another data type of "
            "torch, or a `MixedPrecisionPolicy`."
        )
    return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)


def _sharding_strategy(strategy: object, _: str) -> dict[str, object]:
    name = strategy if isinstance(strategy, str) else getattr(strategy, "name", repr(strategy))
    if name == "FULL_SHARD":
        return {}
    if name == "SHARD_GRAD_OP":
        return {"reshard_after_forward": False}
    if name == "NO_SHARD":
        raise ValueError(
            "`sharding_strategy=NO_SHARD` shards nothing: use "
            "`prepare_model(parallel_strategy='ddp')`."
        )
    raise ValueError(
        f"`sharding_strategy={name}` is not one of FULL_SHARD, SHARD_GRAD_OP and NO_SHARD: for "
        f"hybrid sharding pass a mesh of two dimensions, {_HYBRID_MESH}."
    )


def _mixed_precision(policy: Any, _: str) -> dict[str, object]:
    if getattr(policy, "keep_low_precision_grads", False):
        raise ValueError(
            "`mixed_precision` sets `keep_low_precision_grads`, but FSDP2 keeps gradients in the "
            "data type of the parameters: convert the model, `model.to(torch.bfloat16)`."
        )
    if not hasattr(policy, "cast_root_forward_inputs"):
        return {"mp_policy": policy}
    cast = policy.cast_forward_inputs or policy.cast_root_forward_inputs
    translated = MixedPrecisionPolicy(
        param_dtype=policy.param_dtype, reduce_dtype=policy.reduce_dtype, cast_forward_inputs=cast
    )
    return {"mp_policy": translated, "buffer_dtype": policy.buffer_dtype}


def _cpu_offload(offload: object, _: str) -> dict[str, object]:
    return (
        {"offload_policy": CPUOffloadPolicy()}
        if getattr(offload, "offload_params", offload)
        else {}
    )


def _ignored(states: Iterable[nn.Module | nn.Parameter], _: str) -> dict[str, object]:
    parameters = [
        [state] if isinstance(state, nn.Parameter) else state.parameters() for state in states
    ]
    return {"ignored_params": {parameter for group in parameters for parameter in group}}


def _process_group(group: object, device_type: str) -> dict[str, object]:
    if not isinstance(group, dist.ProcessGroup):
        raise ValueError(
            "`process_group` with several groups means hybrid sharding: pass a mesh of two "
            f"dimensions, {_HYBRID_MESH}."
        )
    return {"mesh": DeviceMesh.from_group(group, device_type)}


TRANSLATIONS: Mapping[str, Callable[[Any, str], dict[str, object]]] = {
    "sharding_strategy": _sharding_strategy,
    "mixed_precision": _mixed_precision,
    "cpu_offload": _cpu_offload,
    "ignored_modules": _ignored,
    "ignored_states": _ignored,
    "device_mesh": lambda mesh, _: {"mesh": mesh},
    "process_group": _process_group,
}
"""Functions that translate options of FSDP1 to those of FSDP2, by name."""
