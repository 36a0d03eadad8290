"""Whether a training function trains a model."""

from __future__ import annotations

import functools
from typing import Any

from syncline.train.torch.model_use import trains_a_model


class Model:
    def fit(self, loss: Any) -> None:
        loss.backward()


def train_directly(config: dict[str, Any]) -> None:
    def step(loss: Any) -> None:
        loss.backward()

    step(config["loss"])


def train_through_a_class(config: dict[str, Any]) -> None:
    helper(config)


def helper(config: dict[str, Any]) -> None:
    Model().fit(config["loss"])
    helper(config)


def only_reduce(config: dict[str, Any]) -> None:
    config["all_reduce"](sum(range(3)))


def test_a_function_trains_if_it_or_its_helpers_call_backward() -> None:
    assert trains_a_model(train_directly)
    assert trains_a_model(train_through_a_class)
    assert trains_a_model(functools.partial(train_directly, {}))
    assert trains_a_model(Model().fit)


def test_a_function_without_such_names_does_not_train() -> None:
    assert not trains_a_model(only_reduce)
    assert not trains_a_model(print)
    assert not trains_a_model(functools.partial(print, "text"))
