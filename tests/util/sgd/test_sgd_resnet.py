"""The residual networks have the shapes and sizes of their paper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from syncline.util.sgd.torch import resnet


@pytest.mark.parametrize(
    ("creator", "parameters"),
    [
        (resnet.ResNet18, 11_173_962),
        (resnet.ResNet34, 21_282_122),
        (resnet.ResNet50, 23_520_842),
        (resnet.ResNet101, 42_512_970),
        (resnet.ResNet152, 58_156_618),
    ],
)
def test_networks_have_their_sizes_and_ignore_the_config(
    creator: Callable[..., torch.nn.Module], parameters: int
) -> None:
    with torch.device("meta"):
        model = creator({"lr": 0.1})
        assert sum(each.numel() for each in model.parameters()) == parameters
        assert model(torch.empty(4, 3, 32, 32)).shape == (4, 10)
