"""Trials of the fault matrix with real ranks: one for each way of parallelism, and a clean run."""

from __future__ import annotations

from pathlib import Path

import pytest

import syncline
from syncline.testing import emulated_network
from syncline.testing.fault_matrix import Trial, run_trial
from syncline.testing.torch_training import PARALLELISMS, Parallelism
from syncline.testing.training_faults import FaultPlan, TrainingFault

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    syncline.init(num_cpus=4, ignore_reinit_error=True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("parallelism", "fault"),
    [
        ("ddp", TrainingFault.MISMATCHED_SHAPES),
        ("fsdp2", TrainingFault.SLOW_DATA),
        ("tensor", TrainingFault.STOPPED),
    ],
)
def test_rank_and_cause_are_named(
    parallelism: Parallelism, fault: TrainingFault, tmp_path: Path
) -> None:
    plan = FaultPlan(fault=fault, rank=2, first_step=20)
    trial = run_trial(tmp_path / "run", parallelism, plan, limit_s=120)
    assert trial.is_right, trial


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_the_host_with_a_slow_network_is_named(parallelism: Parallelism, tmp_path: Path) -> None:
    if why := emulated_network.obstacle():
        pytest.skip(why)
    plan = FaultPlan(fault=TrainingFault.NETWORK_DELAY, rank=2, first_step=20)
    trial = run_trial(tmp_path / "run", parallelism, plan, limit_s=120)
    assert trial.is_right, trial


def test_the_error_says_which_call_a_rank_left_out(tmp_path: Path) -> None:
    plan = FaultPlan(fault=TrainingFault.MISSING_COLLECTIVE, rank=3, first_step=20)
    trial = run_trial(tmp_path / "run", "tensor", plan, limit_s=120)
    assert trial.is_right, trial
    assert trial.verdict is not None
    assert "Rank 3 left out all_reduce [2] Float" in trial.verdict.text


@pytest.mark.long
def test_a_run_without_a_fault_has_no_verdict(tmp_path: Path) -> None:
    trial: Trial = run_trial(
        tmp_path / "run", "ddp", FaultPlan(fault=None, first_step=5), limit_s=8
    )
    assert trial.is_right, trial
