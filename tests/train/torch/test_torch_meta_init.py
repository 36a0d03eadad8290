"""Initialization of models of the meta device; "cpu" stands for a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from syncline.train.torch import prepare_model
from tests.train.torch.torch_fakes import session


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4, 2)
        self.head = nn.Linear(2, 4, bias=False)
        self.head.weight = self.embedding.weight
        self.norm = nn.BatchNorm1d(2)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.linear = nn.Linear(2, 2)


class SelfMade(Scaled):
    def init_weights(self) -> None:
        nn.init.constant_(self.scale, 3.0)
        nn.init.constant_(self.linear.weight, 4.0)
        nn.init.constant_(self.linear.bias, 5.0)


def made_on_meta(model: type[nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return model()


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", None])
def test_model_is_initialized_by_its_modules(strategy: str | None) -> None:
    model = made_on_meta(Tied)
    with session():
        prepared = prepare_model(model, parallel_strategy=strategy)
    assert prepared is model
    assert model.head.weight is model.embedding.weight
    assert torch.isfinite(model.embedding.weight).all()
    torch.testing.assert_close(model.norm.running_var, torch.ones(2))
    torch.testing.assert_close(model.norm.num_batches_tracked, torch.tensor(0))


def test_values_that_a_module_sets_in_its_children_are_kept() -> None:
    with torch.device("meta"):
        model = nn.MultiheadAttention(2, 1)
    with session():
        prepare_model(model)
    assert isinstance(model.out_proj.bias, nn.Parameter)
    assert model.out_proj.bias.tolist() == [0.0, 0.0]
    assert torch.isfinite(model.in_proj_weight).all()


def test_init_weights_of_model_is_called() -> None:
    with session():
        model = prepare_model(made_on_meta(SelfMade))
    assert [parameter.flatten()[0].item() for parameter in model.parameters()] == [3.0, 4.0, 5.0]


def test_initialized_model_keeps_its_values() -> None:
    with session():
        model: Any = prepare_model(SelfMade())
    assert model.scale.tolist() == [1.0, 1.0]


def test_module_without_initialization_is_named_with_remedy() -> None:
    with (
        session(),
        pytest.raises(
            ValueError,
            match=r"Scaled was created on the meta device.*`reset_parameters\(\)`.*param_init_fn",
        ),
    ):
        prepare_model(made_on_meta(Scaled))


def test_param_init_fn_takes_precedence_over_modules() -> None:
    def fill(module: nn.Module) -> None:
        for parameter in module.parameters(recurse=False):
            nn.init.constant_(parameter, 7.0)

    with session():
        model = prepare_model(
            made_on_meta(SelfMade),
            parallel_strategy="fsdp",
            parallel_strategy_kwargs={"param_init_fn": fill},
        )
    assert {
        value for parameter in model.parameters() for value in parameter.flatten().tolist()
    } == {7.0}


def test_model_on_meta_device_stays_there_without_move() -> None:
    with session():
        assert prepare_model(made_on_meta(Tied), move_to_device=False).embedding.weight.is_meta
