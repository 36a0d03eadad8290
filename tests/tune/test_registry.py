"""Registry of trainables, kinds of trainables, and trainables that cannot be pickled."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import syncline
from syncline.tune import registry
from syncline.tune.error import TuneError
from syncline.tune.trainable import FunctionTrainable, Trainable, with_parameters, wrap_function


def objective(config: dict[str, Any]) -> None: ...


class Kind(Trainable):
    """A class to register."""


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_trainables", {})
    monkeypatch.setattr(registry, "_environments", {})


def test_registered_trainables_are_found() -> None:
    registry.register_trainable("kind", Kind)
    registry.register_trainable("objective", objective)
    registry.register_trainable("bound", functools.partial(objective))
    assert registry.get_trainable_cls("kind") is Kind
    assert issubclass(registry.get_trainable_cls("objective"), FunctionTrainable)
    assert registry.get_trainable_cls("bound").__name__ == "bound"


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    registry.register_trainable("train_mnist", objective)
    with pytest.raises(TuneError, match="Did you mean 'train_mnist'"):
        registry.get_trainable_cls("train_minst")
    with pytest.raises(TuneError, match="Registered: .*train_mnist"):
        registry.validate_trainable("something else")


def test_values_that_are_no_trainables_are_refused() -> None:
    with pytest.raises(TypeError, match=r"no subclass of `tune\.Trainable`"):
        registry.register_trainable("x", dict)
    with pytest.raises(TypeError, match="cannot be trained"):
        registry.register_trainable("x", 3)
    with pytest.raises(TypeError, match="pass a function that creates the environment"):
        registry.register_env("x", 3)


def test_functions_and_classes_are_told_apart() -> None:
    registry.register_trainable("kind", Kind)
    registry.register_trainable("objective", objective)
    for function in (
        objective,
        functools.partial(objective),
        "objective",
        wrap_function(objective),
    ):
        assert registry.is_function_trainable(function)
    assert not registry.is_function_trainable(Kind)
    assert not registry.is_function_trainable("kind")


def test_names_functions_and_classes_become_classes() -> None:
    registry.register_trainable("kind", Kind)
    assert registry.as_trainable_class("kind") is Kind
    assert registry.as_trainable_class(Kind) is Kind
    assert registry.as_trainable_class(objective).__name__ == "objective"


def test_a_function_that_cannot_be_sent_is_refused_with_the_part_that_is_to_blame() -> None:
    lock = threading.Lock()

    def locked(config: dict[str, Any]) -> None:
        with lock:
            pass

    with pytest.raises(
        TypeError,
        match=r"`locked` cannot be sent .*closure variable `lock` of function .*is a _thread\.lock",
    ):
        registry.check_picklable(wrap_function(locked), "locked")


def test_a_class_that_cannot_be_sent_is_refused_with_the_part_that_is_to_blame() -> None:
    class Locked(Trainable):
        lock = threading.Lock()

    with pytest.raises(
        TypeError, match=r"`Locked` cannot be sent .*Locked\.lock` is a _thread\.lock"
    ):
        registry.check_picklable(Locked, "Locked")


def test_a_picklable_trainable_passes_without_warning(caplog: pytest.LogCaptureFixture) -> None:
    for kind in (Kind, wrap_function(objective), wrap_function(lambda config: None)):
        registry.check_picklable(kind, "kind")
    assert not caplog.records


@pytest.fixture
def engine() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def test_much_data_in_a_closure_is_warned_of_and_parameters_are_the_remedy(
    engine: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registry, "LARGE_BYTES", 1024**2)
    data = np.zeros(3 * 1024**2, np.uint8)

    def carrying(config: dict[str, Any]) -> int:
        return len(data)

    def given(config: dict[str, Any], data: Any) -> int:
        return len(data)

    with caplog.at_level(logging.WARNING, "syncline"):
        registry.check_picklable(wrap_function(with_parameters(given, data=data)), "given")
        assert not caplog.records
        registry.check_picklable(wrap_function(carrying), "carrying")
    assert "`carrying` contains 3 MiB" in caplog.text
    assert "tune.with_parameters(carrying, name=value)" in caplog.text
