"""What JAX is told, and what a program is told about it; JAX itself is not needed here."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from syncline import train
from syncline.train.jax import JaxConfig, JaxTrainer, processes
from syncline.train.jax.processes import local_device_ids


@pytest.mark.parametrize(
    ("config", "platform"),
    [(JaxConfig(), "cpu"), (JaxConfig(use_gpu=True), "cuda"), (JaxConfig(use_tpu=True), "tpu")],
)
def test_the_platform_is_that_of_the_configuration(config: JaxConfig, platform: str) -> None:
    assert config.platform == platform


def test_two_kinds_of_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="choose one"):
        JaxConfig(use_tpu=True, use_gpu=True)


def test_a_trainer_takes_the_platform_from_its_scaling_config() -> None:
    trainer = JaxTrainer(
        lambda: None, scaling_config=train.ScalingConfig(num_workers=1, use_gpu=True)
    )
    assert trainer._spec.backend_config == JaxConfig(use_gpu=True)


@pytest.mark.parametrize(
    ("gpu_ids", "visible", "numbers"),
    [
        (("3",), "1,3", [1]),
        (("1", "3"), "1,3", [0, 1]),
        (("GPU-b",), "GPU-a,GPU-b", [1]),
        (("2",), None, [2]),
    ],
)
def test_gpus_are_numbered_as_cuda_lists_them(
    gpu_ids: tuple[str, ...], visible: str | None, numbers: list[int]
) -> None:
    assert local_device_ids(gpu_ids, visible) == numbers


@pytest.mark.parametrize(
    ("options", "error"), [({"jax_config": {}}, TypeError), ({"scaling_config": {}}, ValueError)]
)
def test_a_trainer_refuses_what_cannot_be_meant(
    options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=f"`{next(iter(options))}` is a dict"):
        JaxTrainer(lambda: None, **options)


def test_the_training_function_runs_in_this_process_without_workers() -> None:
    result = JaxTrainer(
        lambda: train.report({"a": 1}), scaling_config=train.ScalingConfig(num_workers=0)
    ).fit()
    assert result.metrics == {"a": 1}


def test_a_worker_without_jax_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        world_rank = 0

    monkeypatch.setattr(processes, "get_session", lambda _: Session)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(
        ImportError,
        match=r"JaxTrainer needs the library 'jax', which is not installed: pip install 'syncline\[jax\]'",
    ):
        processes.join("127.0.0.1:1", "cpu")
