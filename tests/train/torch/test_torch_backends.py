"""Backends, accelerators and several GPUs per worker, as the configuration names them (the GPUs are
made up).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import syncline
from syncline import train
from syncline.train.torch import TorchConfig, TorchTrainer, get_device, get_devices

pytestmark = pytest.mark.processes

REGISTERS = """
import torch.distributed as dist

def create(store, rank, size, timeout):
    return dist.ProcessGroupGloo(store, rank, size, timeout)

dist.Backend.register_backend("homemade", create, devices=["cpu"])
"""


class HomemadeConfig(TorchConfig):
    """Imports a backend's module in every worker before the group is made."""

    @property
    def worker_modules(self) -> tuple[str, ...]:
        return (*super().worker_modules, "homemade_backend")


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(num_cpus=4, num_gpus=4, resources={"accelerator_type:B9000": 1})
    yield
    syncline.shutdown()


def facts() -> dict[str, Any]:
    total = torch.ones(1)
    dist.all_reduce(total)
    return {
        "backend": dist.get_backend(),
        "sum": total.item(),
        "gpus": list(train.session.get_session().gpu_ids),
    }


def fit(function: Any, storage: Path, config: TorchConfig | None = None, **scaling: Any) -> Any:
    run_config = train.RunConfig(
        name="run", storage_path=str(storage), worker_runtime_env=scaling.pop("runtime_env", None)
    )
    scaling_config = train.ScalingConfig(**{"num_workers": 2, **scaling})
    return (
        TorchTrainer(
            function, torch_config=config, scaling_config=scaling_config, run_config=run_config
        )
        .fit()
        .return_value
    )


def test_custom_backend_is_used(tmp_path: Path) -> None:
    module = tmp_path / "homemade_backend.py"
    module.write_text(REGISTERS)
    seen = fit(
        facts,
        tmp_path,
        HomemadeConfig(backend="homemade"),
        runtime_env={"py_modules": [str(module)]},
    )
    assert (seen["backend"], seen["sum"]) == ("homemade", 2.0)


def test_backend_per_device_type_is_allowed(tmp_path: Path) -> None:
    assert fit(facts, tmp_path, TorchConfig(backend="cpu:gloo"))["sum"] == 2.0


def test_workers_share_a_gpu_with_gloo_but_not_with_nccl(tmp_path: Path) -> None:
    half = {"use_gpu": True, "resources_per_worker": {"GPU": 0.5}}
    seen = fit(facts, tmp_path, TorchConfig(backend="gloo"), **half)
    assert (seen["backend"], seen["sum"], len(seen["gpus"])) == ("gloo", 2.0, 1)
    with pytest.raises(Exception, match="Ranks 0 and 1 share GPU"):
        fit(facts, tmp_path / "nccl", **half)


def test_worker_with_several_gpus_uses_all(tmp_path: Path) -> None:
    def devices() -> list[str]:
        torch.cuda.is_available = lambda: True
        return [str(device) for device in (get_device(), *get_devices())]

    two = {"use_gpu": True, "resources_per_worker": {"GPU": 2}}
    assert fit(devices, tmp_path, TorchConfig(backend="gloo"), **two) == [
        "cuda:0",
        "cuda:0",
        "cuda:1",
    ]


def test_existing_accelerator_is_used_and_another_refused(tmp_path: Path) -> None:
    kind = {"use_gpu": True, "accelerator_type": "B9000"}
    assert len(fit(facts, tmp_path, TorchConfig(backend="gloo"), **kind)["gpus"]) == 1
    with pytest.raises(ValueError, match="accelerator_type:C1"):
        fit(
            facts,
            tmp_path / "other",
            TorchConfig(backend="gloo"),
            use_gpu=True,
            accelerator_type="C1",
        )
