"""What can never be placed is refused with the figures and a remedy."""

from __future__ import annotations

import pytest

from syncline.train.config import ScalingConfig
from syncline.train.workers.group import actor_options
from syncline.train.workers.placement import check_feasible


def test_too_many_workers_are_told_how_many_fit() -> None:
    with pytest.raises(ValueError, match=r"needs 8 CPUs \(1 per worker\) but there are 2.*lower `num_workers` to 2.*'CPU': 0\.25"):
        check_feasible(ScalingConfig(num_workers=8), {"CPU": 2.0})


def test_gpus_that_are_not_there_are_named() -> None:
    with pytest.raises(ValueError, match=r"needs 1 GPU \(1 per worker\) but there are 0.*use_gpu=False"):
        check_feasible(ScalingConfig(use_gpu=True), {"CPU": 2.0})


def test_an_elastic_group_needs_its_minimum_only() -> None:
    check_feasible(ScalingConfig(num_workers=(2, 100)), {"CPU": 2.0})


def test_an_actor_holds_the_whole_of_its_bundle() -> None:
    scaling = ScalingConfig(use_gpu=True, resources_per_worker={"CPU": 2, "GPU": 0.5, "memory": 100, "special": 1}, accelerator_type="H100")
    options = actor_options(scaling, {"env_vars": {"A": "1"}})
    assert {name: options[name] for name in ("num_cpus", "num_gpus", "memory", "accelerator_type", "resources", "runtime_env")} == {
        "num_cpus": 2,
        "num_gpus": 0.5,
        "memory": 100,
        "accelerator_type": "H100",
        "resources": {"special": 1},
        "runtime_env": {"env_vars": {"A": "1"}},
    }
