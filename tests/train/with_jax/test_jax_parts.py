"""Configuration of JAX and its errors; JAX itself is not needed."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from syncline import train
from syncline.train.jax import JaxConfig, JaxTrainer, backend


@pytest.mark.parametrize(
    ("config", "platform"),
    [(JaxConfig(), "cpu"), (JaxConfig(use_gpu=True), "cuda"), (JaxConfig(use_tpu=True), "tpu")],
)
def test_platform_is_that_of_configuration(config: JaxConfig, platform: str) -> None:
    assert config.platform == platform


def test_two_kinds_of_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="set one of them"):
        JaxConfig(use_tpu=True, use_gpu=True)


def test_trainer_uses_platform_of_scaling_config() -> None:
    trainer = JaxTrainer(
        lambda: None, scaling_config=train.ScalingConfig(num_workers=1, use_gpu=True)
    )
    assert trainer._spec.backend_config == JaxConfig(use_gpu=True)


@pytest.mark.parametrize(
    ("options", "error"), [({"jax_config": {}}, TypeError), ({"scaling_config": {}}, ValueError)]
)
def test_trainer_refuses_invalid_arguments(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=f"`{next(iter(options))}` is a dict"):
        JaxTrainer(lambda: None, **options)


def test_training_function_runs_in_this_process_without_workers() -> None:
    result = JaxTrainer(
        lambda: train.report({"a": 1}), scaling_config=train.ScalingConfig(num_workers=0)
    ).fit()
    assert result.metrics == {"a": 1}


def test_worker_without_jax_names_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        world_rank = 0

    monkeypatch.setattr(backend, "get_session", lambda _: Session)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(
        ImportError, match=r"JaxTrainer needs the library 'jax'.*pip install 'syncline\[jax\]'"
    ):
        backend.join("127.0.0.1:1", "cpu")
