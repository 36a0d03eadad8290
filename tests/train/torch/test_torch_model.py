"""Models alone, in mixed precision and on a GPU; with several ranks they are tested beside the
process group and in test_torch_fsdp.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy

from syncline.train.torch import accelerate, backward, prepare_model, prepare_optimizer
from tests.train.torch.torch_fakes import session

META = torch.device("meta")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("cpu:gloo,cuda:nccl", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Recorder(nn.Module):
    """Notes the precision it computes in."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.seen: list[torch.dtype] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        self.seen.append(y.dtype)
        return y.float().sum()


def test_single_worker_trains_unwrapped_model() -> None:
    model = nn.Linear(2, 1)
    with session():
        assert prepare_model(model) is model
        assert prepare_model(model, parallel_strategy="fsdp", move_to_device=META) is model


def test_model_moves_to_given_device() -> None:
    with session():
        assert prepare_model(nn.Linear(2, 1), move_to_device=META).weight.device == META
        assert (
            prepare_model(nn.Linear(2, 1, device=META), move_to_device=False).weight.device == META
        )


def test_unknown_strategy_is_refused() -> None:
    with session(), pytest.raises(ValueError, match="`parallel_strategy='pipeline'` is unknown"):
        prepare_model(nn.Linear(2, 1), parallel_strategy="pipeline")


def test_only_modules_can_be_prepared() -> None:
    with session(), pytest.raises(TypeError, match="`model` is a dict"):
        prepare_model({})


def test_preparing_outside_training_function_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="prepare_model"):
        prepare_model(nn.Linear(2, 1))


def test_without_accelerate_nothing_changes() -> None:
    model = Recorder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with session():
        prepare_model(model)
        assert prepare_optimizer(optimizer) is optimizer
        backward(model(torch.ones(2)))
    assert model.seen == [torch.float32]
    assert model.linear.weight.grad is not None


def test_mixed_precision_is_limited_to_session() -> None:
    model, later = Recorder(), Recorder()
    with session():
        accelerate(amp=True)
        prepare_model(model)
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        before = model.linear.weight.detach().clone()
        backward(model(torch.ones(2)))
        optimizer.step()
        optimizer.zero_grad()
    with session():
        prepare_model(later)(torch.ones(2))
    assert model.seen == [torch.bfloat16]
    assert later.seen == [torch.float32]
    assert not torch.equal(model.linear.weight, before)
    assert model.linear.weight.grad is None


def test_model_in_mixed_precision_can_be_copied_and_pickled() -> None:
    with session():
        accelerate(amp=True)
        model: Any = prepare_model(Recorder())
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        twin(torch.ones(2))
        assert twin.seen == [torch.bfloat16]
    assert model.seen == []


def test_prepared_optimizer_works_with_schedulers_and_saves_its_state() -> None:
    model = nn.Linear(2, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with session():
        accelerate(amp=True)
        optimizer = prepare_optimizer(inner)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    scheduler.step()
    assert inner.param_groups[0]["lr"] == pytest.approx(0.01)
    assert optimizer.state_dict() == inner.state_dict()
    optimizer.load_state_dict(optimizer.state_dict())


@needs_gpu
def test_model_moves_to_gpu_of_worker() -> None:
    with session(gpu_ids=("0",), use_gpu=True):
        assert prepare_model(nn.Linear(2, 1)).weight.device == torch.device("cuda", 0)


@needs_gpu
def test_mixed_precision_scales_gradients_on_gpu() -> None:
    with session(gpu_ids=("0",), use_gpu=True):
        accelerate(amp=True)
        model: Any = prepare_model(Recorder())
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        before = model.linear.weight.detach().clone()
        backward(model(torch.ones(2, device="cuda")))
        optimizer.step()
    assert model.seen == [torch.float16]
    torch.testing.assert_close(model.linear.weight, before - 0.1, rtol=1e-3, atol=1e-3)


@needs_gpu
def test_sharded_model_computes_in_low_precision_on_gpu(one_rank: None) -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    with session(gpu_ids=("0",), use_gpu=True):
        prepare_model(
            model,
            parallel_strategy="fsdp",
            parallel_strategy_kwargs={"mp_policy": "bfloat16", "wrap": {nn.Linear}},
        )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    output = model(torch.ones(2, 4, device="cuda"))
    output.float().sum().backward()
    optimizer.step()
    assert output.dtype is torch.bfloat16
    assert {(parameter.dtype, parameter.device.type) for parameter in model.parameters()} == {
        (torch.float32, "cuda")
    }


@needs_gpu
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_gradients_of_prepared_models_are_scaled_on_gpu(one_rank: None, strategy: str) -> None:
    mesh = init_device_mesh("cuda", (1,))
    with session(gpu_ids=("0",), use_gpu=True):
        accelerate(amp=True)
        model = prepare_model(
            Recorder(), parallel_strategy=strategy, parallel_strategy_kwargs={"mesh": mesh}
        )
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        get_optimizer_state_dict(model, optimizer)
        backward(model(torch.ones(2, device="cuda")))
        optimizer.step()
    assert model.seen == [torch.float16]
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


@needs_gpu
def test_parameters_can_be_offloaded_between_steps(one_rank: None) -> None:
    with session(gpu_ids=("0",), use_gpu=True):
        model = prepare_model(
            nn.Linear(4, 1),
            parallel_strategy="fsdp",
            parallel_strategy_kwargs={"offload_policy": CPUOffloadPolicy()},
        )
        model(torch.ones(2, 4, device="cuda")).sum().backward()
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
