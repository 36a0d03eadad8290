"""Which submodules of a model are sharded, or recomputed, as one *unit* each; and recomputing them.

Covered: finding the repeated blocks of a model, the policies that a program may give instead,
FSDP1's wrapping policies, activation checkpointing. Sharding itself is in `fsdp`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeAlias

from torch import nn

ModulePolicy: TypeAlias = (
    "type[nn.Module] | Collection[type[nn.Module] | str] | Callable[[nn.Module], bool]"
)
"""Which modules: those of a class, of several classes (or names of classes), or those for which a
function says True.
"""

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
WITHOUT_FORWARD = (nn.ModuleList, nn.ModuleDict)


def find_units(model: nn.Module, policy: ModulePolicy | bool | None = None) -> list[nn.Module]:
    """The units of `model`, inner ones before those around them; never the model itself, which
    holds what is in no unit.

    Args:
        model: any model.
        policy: None or True: the repeated blocks, see `repeated_blocks`; False: none; else as the
            policy says.

    Raises:
        TypeError: the policy is none.
        ValueError: classes of which the model has no module.
    """
    if policy is False:
        return []
    if policy is None or policy is True:
        chosen = set(repeated_blocks(model))
    else:
        chosen = chosen_by(model, policy, "wrap")
    return _inner_first(model, chosen)


def repeated_blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The blocks that make up a model's depth, the outermost ones.

    Those of the classes in the model's `_no_split_modules`, as Transformers has it; else the
    members of ModuleLists, ModuleDicts and Sequentials that have parameters, submodules, and a
    sibling of their class.
    """
    names = getattr(model, "_no_split_modules", None)
    if names:
        yield from (module for module in model.modules() if type(module).__name__ in names)
    else:
        yield from _outermost_repeated(model)


def chosen_by(model: nn.Module, policy: ModulePolicy, option: str) -> set[nn.Module]:
    """The submodules that a policy means, the model itself excepted; `option` is its name in
    messages.
    """
    classes = {policy} if isinstance(policy, type) else policy
    if callable(classes):
        chosen = {module for module in model.modules() if classes(module)}
    elif (
        isinstance(classes, Collection)
        and not isinstance(classes, str)
        and all(isinstance(c, (type, str)) for c in classes)
    ):
        types = tuple(c for c in classes if isinstance(c, type))
        names = {c for c in classes if isinstance(c, str)}
        chosen = {
            module
            for module in model.modules()
            if isinstance(module, types) or type(module).__name__ in names
        }
        if classes and not chosen - {model}:
            raise ValueError(
                f"`{option}={policy!r}` names classes, but {type(model).__name__} has no submodule of them: it is made of "
                f"{', '.join(sorted({type(module).__name__ for module in model.modules()} - {type(model).__name__}))}."
            )
    else:
        raise TypeError(
            f"`{option}={policy!r}` says nothing about modules: give a set of their classes, or a function from module to bool."
        )
    return chosen - {model}


def find_units_of_fsdp1(model: nn.Module, policy: Callable[..., bool]) -> list[nn.Module]:
    """The units that a wrapping policy of FSDP1 chooses: `policy(module=, recurse=,
    nonwrapped_numel=)`, asked as FSDP1 asks.

    TypeError: it is not callable.
    """
    if not callable(policy):
        raise TypeError(
            f"`auto_wrap_policy={policy!r}` is not callable: give `wrap` instead, a set of classes or a function from module to bool."
        )
    chosen: set[nn.Module] = set()
    for child in model.children():
        _ask_fsdp1(child, policy, chosen)
    return _inner_first(model, chosen)


def recompute(
    model: nn.Module, units: Sequence[nn.Module], policy: ModulePolicy | bool
) -> list[nn.Module]:
    """Let submodules compute their activations again in the backward pass instead of keeping them,
    and return the units.

    A unit that is recomputed is replaced by torch's wrapper around it; names in state dicts stay as
    they are.

    Args:
        model: changed in place.
        units: as `find_units` gives them.
        policy: which submodules; True: the units.

    Raises:
        ValueError: True where there are no units; classes of which there is no module.
    """
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        CheckpointWrapper,
        apply_activation_checkpointing,
    )

    if policy is False:
        return list(units)
    if policy is True and not units:
        raise ValueError(
            f"`activation_checkpointing=True` recomputes the repeated blocks of a model, but {type(model).__name__} has none: name the "
            "classes of the modules to recompute, `activation_checkpointing={Block}`."
        )
    chosen = set(units) if policy is True else chosen_by(model, policy, "activation_checkpointing")
    # Torch's default is the variant without reentrant autograd, the only one that works with FSDP2.
    apply_activation_checkpointing(model, check_fn=lambda module: module in chosen)
    wrapped: dict[nn.Module, nn.Module] = {
        module._checkpoint_wrapped_module: module
        for module in model.modules()
        if isinstance(module, CheckpointWrapper)
    }
    return [wrapped.get(unit, unit) for unit in units]


def _outermost_repeated(module: nn.Module) -> Iterator[nn.Module]:
    blocks = _repeated_members(module) if isinstance(module, CONTAINERS) else []
    yield from blocks
    for child in module.children():
        if child not in blocks:
            yield from _outermost_repeated(child)


def _repeated_members(container: nn.Module) -> list[nn.Module]:
    """The blocks among a container's members: not single layers, which are too small to be worth an
    exchange of their own.
    """
    members = [
        child
        for child in container.children()
        if any(child.children()) and any(True for _ in child.parameters())
    ]
    counts = Counter(type(member) for member in members)
    return [member for member in members if counts[type(member)] > 1]


def _inner_first(model: nn.Module, chosen: set[nn.Module]) -> list[nn.Module]:
    ordered = [
        module
        for module in model.modules()
        if module in chosen and not isinstance(module, WITHOUT_FORWARD)
    ]
    return ordered[::-1]


def _ask_fsdp1(module: nn.Module, policy: Callable[..., Any], chosen: set[nn.Module]) -> int:
    """Add what the policy chooses at and below `module`; returns how many of its parameters'
    elements are in units.
    """
    numel = sum(parameter.numel() for parameter in module.parameters())
    in_units = 0
    if policy(module=module, recurse=True, nonwrapped_numel=numel):
        in_units = sum(_ask_fsdp1(child, policy, chosen) for child in module.children())
        if policy(module=module, recurse=False, nonwrapped_numel=numel - in_units):
            chosen.add(module)
            return numel
    return in_units
