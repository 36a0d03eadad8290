"""Units of a model, the submodules that are sharded or recomputed together; and activation
checkpointing.

Covered: repeated blocks of a model, policies of the program, and wrapping policies of FSDP1.
Sharding is in `fsdp`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

from torch import nn

ModulePolicy: TypeAlias = (
    "type[nn.Module] | Collection[type[nn.Module] | str] | Callable[[nn.Module], bool]"
)
"""Selects modules: one class, several classes (or names of classes), or a predicate."""

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
WITHOUT_FORWARD = (nn.ModuleList, nn.ModuleDict)


def find_units(model: nn.Module, policy: ModulePolicy | bool | None = None) -> list[nn.Module]:
    """Return the units of `model`, inner before outer ones, without the model itself.

    Args:
        model: Model.
        policy: None or True for the repeated blocks, False for none, or a policy.

    Raises:
        TypeError: Invalid policy.
        ValueError: The model has no module of the classes.
    """
    if policy is False:
        return []
    if policy is None or policy is True:
        chosen = set(repeated_blocks(model))
    else:
        chosen = chosen_by(model, policy, "wrap")
    return _inner_first(model, chosen)


def repeated_blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost repeated blocks of a model.

    They are the modules of the classes in the model's `_no_split_modules` (a convention of
    Transformers). Without it, they are members of ModuleLists, ModuleDicts and Sequentials that
    have parameters, submodules, and a sibling of the same class.
    """
    names = getattr(model, "_no_split_modules", None)
    if names:
        yield from (module for module in model.modules() if type(module).__name__ in names)
    else:
        yield from _outermost_repeated(model)


def chosen_by(model: nn.Module, policy: ModulePolicy, option: str) -> set[nn.Module]:
    """Return the submodules that a policy selects, without the model itself. `option` is its name
    in errors.
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
            names_of_others = {type(module).__name__ for module in model.modules()}
            raise ValueError(
                f"`{option}={policy!r}` names classes, but {type(model).__name__} has no submodule "
                "of them. Its submodules are of the classes "
                f"{', '.join(sorted(names_of_others - {type(model).__name__}))}."
            )
    else:
        raise TypeError(
            f"`{option}={policy!r}` is not a policy: pass a set of module classes, or a function "
            "from module to bool."
        )
    return chosen - {model}


def find_units_of_fsdp1(model: nn.Module, policy: Callable[..., bool]) -> list[nn.Module]:
    """Return the units that a wrapping policy of FSDP1 selects.

    Args:
        model: Model.
        policy: Called as FSDP1 does, `policy(module=, recurse=, nonwrapped_numel=)`.

    Raises:
        TypeError: The policy is not callable.
    """
    if not callable(policy):
        raise TypeError(
            f"`auto_wrap_policy={policy!r}` is not callable: pass `wrap` instead, a set of classes "
            "or a function from module to bool."
        )
    chosen: set[nn.Module] = set()
    for child in model.children():
        _apply_fsdp1_policy(child, policy, chosen)
    return _inner_first(model, chosen)


def recompute(
    model: nn.Module, units: Sequence[nn.Module], policy: ModulePolicy | bool
) -> list[nn.Module]:
    """Recompute the activations of submodules in the backward pass, and return the units.

    A recomputed unit is replaced by torch's wrapper around it. Names in state dicts do not change.

    Args:
        model: Model; changed in place.
        units: Units, as returned by `find_units`.
        policy: Submodules to recompute; True for the units.

    Raises:
        ValueError: `policy` is True but there are no units, or the model has no module of the
            classes.
    """
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        CheckpointWrapper,
        apply_activation_checkpointing,
    )

    if policy is False:
        return list(units)
    if policy is True and not units:
        raise ValueError(
            "`activation_checkpointing=True` recomputes the repeated blocks of a model, but "
            f"{type(model).__name__} has none: name the classes to recompute, "
            "`activation_checkpointing={Block}`."
        )
    chosen = set(units) if policy is True else chosen_by(model, policy, "activation_checkpointing")
    # torch's default is the variant without reentrant autograd, the only one that FSDP2 supports.
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
    """Return the blocks among a container's members. Single layers are too small for a separate
    exchange.
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


def _apply_fsdp1_policy(
    module: nn.Module, policy: Callable[..., bool], chosen: set[nn.Module]
) -> int:
    """Add the selected modules in `module` to `chosen`; return their number of parameter
    elements.
    """
    numel = sum(parameter.numel() for parameter in module.parameters())
    in_units = 0
    if policy(module=module, recurse=True, nonwrapped_numel=numel):
        in_units = sum(_apply_fsdp1_policy(child, policy, chosen) for child in module.children())
        if policy(module=module, recurse=False, nonwrapped_numel=numel - in_units):
            chosen.add(module)
            return numel
    return in_units
