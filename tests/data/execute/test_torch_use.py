"""Plans whose workers may use torch, found in the functions and sources of the plan."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import pytest

from syncline.data.context import DataContext
from syncline.data.execute.physical_plan import ExecutionLimits, PhysicalPlan, SourceTasks, Stage
from syncline.data.execute.torch_use import may_use_torch
from syncline.data.execute.worker_handles import WarmWorkers, WorkerHandle
from tests.data.execute.handmade import mapped, numbers


def plan_of(*stages: Stage) -> PhysicalPlan:
    return PhysicalPlan(
        stages=stages, context=DataContext(), limits=ExecutionLimits(cpus=1, budget_bytes=1), seed=0
    )


def uses(function: Callable[..., Any]) -> bool:
    return may_use_torch(plan_of(numbers(1, 1), mapped(function)))


def in_main(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as one of the program, which is pickled by value with its globals."""
    return FunctionType(
        function.__code__, {"__name__": "__main__"}, function.__name__, None, function.__closure__
    )


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Return a function that makes modules with a function `call` each and other values."""

    def new(name: str, **values: object) -> ModuleType:
        module = ModuleType(name)
        exec("def call(batch): return batch", vars(module))
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return new


def test_a_function_without_torch() -> None:
    def doubled(batch):
        return {"id": batch["id"] * 2}

    assert not uses(in_main(doubled))


def test_a_function_that_imports_torch() -> None:
    def tensors(batch):
        import torch

        return torch.as_tensor(batch["id"])

    assert uses(in_main(tensors))


def test_an_argument_of_a_class_of_torch() -> None:
    import torch

    def plus(offset, batch):
        return batch

    assert uses(partial(in_main(plus), torch.zeros(3)))


def test_a_module_that_uses_torch(modules: Callable[..., ModuleType]) -> None:
    import torch

    assert not uses(modules("users_images").call)
    assert uses(modules("users_images", nn=torch.nn).call)
    assert uses(modules("users_images", Module=torch.nn.Module).call)
    assert uses(modules("users_images", weights=torch.zeros(2)).call)


def test_a_module_that_uses_another_one_with_torch(modules: Callable[..., ModuleType]) -> None:
    import torch

    layers = modules("users_layers", thing=torch)
    assert uses(modules("users_images", draw=layers.call).call)


def test_a_source_with_torch() -> None:
    import torch

    def read(weights):
        yield from ()

    stage = numbers(1, 1)
    source = partial(in_main(read), torch.zeros(2))
    grouping = SourceTasks(payloads=[source])
    assert may_use_torch(plan_of(Stage(name="read", grouping=grouping, chain=stage.chain)))


def test_what_cannot_be_pickled_may_use_torch() -> None:
    lock = __import__("threading").Lock()
    assert uses(lambda batch: (lock, batch))


class Idle(WorkerHandle):
    """A worker without a process."""

    def __init__(self, *, may_use_torch: bool) -> None:
        self.may_use_torch = may_use_torch
        self.active = None


def test_a_plan_with_torch_takes_no_warm_worker_without_it() -> None:
    pool = WarmWorkers(idle_s=1000)
    without, with_torch = Idle(may_use_torch=False), Idle(may_use_torch=True)
    try:
        for worker in (with_torch, without):
            pool.give(worker)
        assert pool.take(may_use_torch=True) is with_torch
        assert pool.take(may_use_torch=False) is without
        pool.give(with_torch)
        assert pool.take(may_use_torch=False) is with_torch
    finally:
        pool.clear()
