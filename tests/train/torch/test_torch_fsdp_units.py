"""Units by default and by policy, and activation checkpointing."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp.wrap import (
    ModuleWrapPolicy,
    always_wrap_policy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)

from syncline.train.torch.fsdp_units import find_units, find_units_of_fsdp1, recompute


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y: torch.Tensor = self.layers(x)
        return y


class Deep(nn.Module):
    def __init__(self, container: type[nn.Module] = nn.ModuleList) -> None:
        super().__init__()
        self.stem = nn.Linear(2, 2)
        blocks = [Block() for _ in range(3)]
        members: Any = (
            {str(index): block for index, block in enumerate(blocks)}
            if container is nn.ModuleDict
            else blocks
        )
        self.blocks = nn.Sequential(*blocks) if container is nn.Sequential else container(members)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks.children():
            x = block(x)
        return x


def names(model: nn.Module, units: list[nn.Module]) -> list[str]:
    by_module = {module: name for name, module in model.named_modules()}
    return [by_module[unit] for unit in units]


@pytest.mark.parametrize("container", [nn.ModuleList, nn.ModuleDict, nn.Sequential])
def test_repeated_blocks_are_units(container: type[nn.Module]) -> None:
    model = Deep(container)
    assert names(model, find_units(model)) == ["blocks.2", "blocks.1", "blocks.0"]


def test_outermost_blocks_of_encoder_and_decoder_are_units() -> None:
    model = nn.Transformer(4, 2, 2, 2, 8, batch_first=True)
    assert sorted(names(model, find_units(model))) == [
        f"{part}.layers.{index}" for part in ("decoder", "encoder") for index in (0, 1)
    ]


def test_blocks_of_sequential_model_are_units() -> None:
    assert len(find_units(nn.Sequential(Deep(), Deep()))) == 2


def test_single_layers_and_blocks_without_sibling_are_not_units() -> None:
    assert find_units(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))) == []
    assert find_units(nn.Sequential(Block(), nn.Linear(2, 2))) == []


def test_no_split_modules_of_transformers_are_units() -> None:
    model = Deep()
    model._no_split_modules = ["Linear"]  # type: ignore[assignment]
    assert len(find_units(model)) == 7


def test_policies_select_by_class_name_or_function_inner_first() -> None:
    model = Deep()
    assert names(model, find_units(model, {nn.Linear, "Block"}))[:3] == [
        "blocks.2.layers.2",
        "blocks.2.layers.0",
        "blocks.2",
    ]
    assert find_units(model, Block) == find_units(model)
    assert names(model, find_units(model, lambda module: module is model.stem)) == ["stem"]
    assert find_units(model, lambda module: True)[-1] is not model
    assert not any(
        isinstance(unit, nn.ModuleList) for unit in find_units(model, lambda module: True)
    )
    assert find_units(model, False) == []


def test_unknown_classes_are_refused_with_existing_ones() -> None:
    with pytest.raises(
        ValueError,
        match="Deep has no submodule of them.*Block, Linear, ModuleList, ReLU, Sequential",
    ):
        find_units(Deep(), {nn.Conv2d})


@pytest.mark.parametrize("policy", [3, "Block", [1]])
def test_invalid_policy_is_refused(policy: Any) -> None:
    with pytest.raises(TypeError, match="`wrap="):
        find_units(Deep(), policy)


def test_policies_of_fsdp1_select_same_units() -> None:
    model = Deep()
    by_class = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    assert find_units_of_fsdp1(model, by_class) == find_units(model, Block)
    assert find_units_of_fsdp1(model, ModuleWrapPolicy({Block})) == find_units(model, Block)
    by_size = functools.partial(size_based_auto_wrap_policy, min_num_params=12)
    assert names(model, find_units_of_fsdp1(model, by_size)) == [
        "blocks.2.layers",
        "blocks.1.layers",
        "blocks.0.layers",
    ]
    assert len(find_units_of_fsdp1(model, always_wrap_policy)) == 1 + 3 * 5
    with pytest.raises(TypeError, match="pass `wrap` instead"):
        find_units_of_fsdp1(model, {Block})


@pytest.mark.parametrize("policy", [True, {Block}, lambda module: isinstance(module, Block)])
def test_recomputed_units_run_again_in_backward_pass_and_keep_names(policy: Any) -> None:
    model, plain = Deep(), Deep()
    plain.load_state_dict(model.state_dict())
    before = list(model.state_dict())
    blocks = list(model.blocks.children())
    units = recompute(model, find_units(model), policy)
    assert [unit.get_submodule("_checkpoint_wrapped_module") for unit in units] == blocks[::-1]
    x = torch.ones(1, 2)
    for either in (model, plain):
        either(x).sum().backward()
    assert [block.calls for block in blocks] == [2, 2, 2]
    assert list(model.state_dict()) == before
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_recomputing_units_of_model_without_units_is_an_error() -> None:
    with pytest.raises(ValueError, match="Linear has none: name the classes"):
        recompute(nn.Linear(2, 2), [], True)
    with pytest.raises(ValueError, match="`activation_checkpointing="):
        recompute(Deep(), [], {nn.Conv2d})
    with pytest.raises(TypeError, match="`activation_checkpointing=1`"):
        recompute(Deep(), [], 1)
