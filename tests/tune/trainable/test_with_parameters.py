"""`with_parameters` and `with_resources`: arguments of trials, pickling, and refused values."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest

import syncline
from syncline.core import api
from syncline.tune import context
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.trainable import Trainable, with_parameters, with_resources, wrap_function


@pytest.fixture
def engine() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def first_result(trainable: Any, config: dict[str, Any] | None = None) -> dict[str, Any]:
    kind = trainable if isinstance(trainable, type) else wrap_function(trainable)
    made = kind(config or {})
    try:
        return dict(made.train())
    finally:
        made.stop()


def size(config: dict[str, Any], data: Any = None, scale: int = 1) -> dict[str, Any]:
    return {"size": len(data) * scale}


class Sized(Trainable):
    """Trainable that returns the size of its data."""

    def setup(self, config: dict[str, Any], data: Any = None) -> None:
        self.size = len(data)

    def step(self) -> dict[str, Any]:
        return {"size": self.size}


@pytest.mark.parametrize(
    "trainable",
    [size, Sized, lambda config, data: {"size": len(data)}, functools.partial(size, scale=1)],
)
def test_functions_and_classes_get_their_parameters(trainable: Any) -> None:
    assert first_result(with_parameters(trainable, data=[1, 2, 3]))["size"] == 3


def test_a_generator_gets_its_parameters() -> None:
    def function(config: dict[str, Any], data: list[int]) -> Iterator[int]:
        yield from data

    assert first_result(with_parameters(function, data=[7, 8]))["_metric"] == 7


def test_names_stay() -> None:
    assert with_parameters(size, data=[]).__name__ == "size"
    assert with_parameters(Sized, data=[]).__name__ == "Sized"
    assert with_resources(Sized, {"cpu": 2}).__name__ == "Sized"
    assert (
        wrap_function(with_resources(functools.partial(size, data=[]), {"cpu": 2})).__name__
        == "size"
    )


def test_parameters_travel_as_references_that_are_made_once(
    engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[Any] = []
    put = api.put

    def counting(value: Any, **options: Any) -> Any:
        stored.append(value)
        return put(value, **options)

    monkeypatch.setattr(api, "put", counting)
    data = np.arange(1_000_000)
    for trainable in (with_parameters(size, data=data), with_parameters(Sized, data=data)):
        stored.clear()
        sent = cloudpickle.dumps(trainable)
        assert cloudpickle.dumps(trainable)
        assert len(sent) < 100_000
        assert len(stored) <= 1  # at wrapping, before the first
        assert first_result(cloudpickle.loads(sent))["size"] == 1_000_000


def test_wrapping_before_init_does_not_start_an_engine() -> None:
    wrapped = with_parameters(size, data=np.arange(1_000_000))
    assert not syncline.is_initialized()
    for _ in range(2):  # references do not outlive their engine
        syncline.init(local_mode=True)
        sent = cloudpickle.dumps(wrapped)
        assert len(sent) < 100_000
        assert first_result(cloudpickle.loads(sent))["size"] == 1_000_000
        syncline.shutdown()


def test_references_may_be_given(engine: None) -> None:
    wrapped = with_parameters(size, data=syncline.put([1, 2]))
    assert first_result(wrapped)["size"] == 2
    assert first_result(cloudpickle.loads(cloudpickle.dumps(wrapped)))["size"] == 2


def test_a_parameter_that_the_trainable_does_not_take_is_refused() -> None:
    with pytest.raises(ValueError, match="`size` takes no `date`, only config, data, scale"):
        with_parameters(size, date=[])
    with pytest.raises(ValueError, match=r"`Sized\.setup` takes no `date`"):
        with_parameters(Sized, date=[])


@pytest.mark.parametrize(
    "wrap",
    [
        functools.partial(with_parameters, data=1),
        functools.partial(with_resources, resources={"cpu": 1}),
    ],
)
@pytest.mark.parametrize(("given", "what"), [(int, "the class int"), ("name", "a str")])
def test_values_that_are_no_trainables_are_refused(wrap: Any, given: Any, what: str) -> None:
    with pytest.raises(ValueError, match=f"{what} is no trainable"):
        wrap(given)


@pytest.mark.parametrize(
    "trainable", [functools.partial(size, data=[]), Sized, lambda config: None]
)
def test_resources_are_what_a_trial_requests(trainable: Any) -> None:
    def requested(resources: Any, config: dict[str, Any]) -> Any:
        wrapped = with_resources(trainable, resources)
        kind = wrapped if isinstance(wrapped, type) else wrap_function(wrapped)
        return cloudpickle.loads(cloudpickle.dumps(kind)).default_resource_request(config)

    two = PlacementGroupFactory([{"CPU": 2, "GPU": 0.5}])
    assert requested({"cpu": 2, "gpu": 0.5}, {}) == two
    assert requested({"CPU": 2, "GPU": 0.5}, {}) == two
    assert requested(two, {}) == two
    assert requested(
        lambda config: PlacementGroupFactory([{"CPU": config["n"]}]), {"n": 3}
    ) == PlacementGroupFactory([{"CPU": 3}])


def test_two_requests_for_one_function_do_not_disturb_each_other() -> None:
    def function(config: dict[str, Any]) -> None: ...

    one, two = with_resources(function, {"cpu": 1}), with_resources(function, {"cpu": 2})
    assert wrap_function(one).default_resource_request({}) == PlacementGroupFactory([{"CPU": 1}])
    assert wrap_function(two).default_resource_request({}) == PlacementGroupFactory([{"CPU": 2}])
    assert wrap_function(function).default_resource_request({}) is None


def test_both_wrappers_in_either_order() -> None:
    class Model:
        def objective(self, config: dict[str, Any], data: Any = None) -> dict[str, Any]:
            return {"size": len(data), "id": context.get_context().get_trial_id()}

    four = PlacementGroupFactory([{"CPU": 4}])
    for wrapped in (
        with_parameters(with_resources(size, {"cpu": 4}), data=[1]),
        with_resources(with_parameters(size, data=[1]), {"cpu": 4}),
        with_resources(with_parameters(Model().objective, data=[1]), {"cpu": 4}),
        with_parameters(with_resources(Sized, {"cpu": 4}), data=[1]),
        with_resources(with_parameters(Sized, data=[1]), {"cpu": 4}),
    ):
        kind: Any = wrapped if isinstance(wrapped, type) else wrap_function(wrapped)
        assert kind.default_resource_request({}) == four
        assert first_result(kind)["size"] == 1


def test_resources_of_another_kind_are_refused() -> None:
    with pytest.raises(TypeError, match="resources 2 have an unknown type"):
        with_resources(size, 2)
