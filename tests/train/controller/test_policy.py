"""Failure budgets and the size of a group."""

from __future__ import annotations

import pytest

from syncline.train.config import FailureConfig
from syncline.train.controller.policy import FUTILE_CONTROLLER_FAILURES, FailureBudgets, group_size


@pytest.mark.parametrize(("limit", "retries"), [(0, 0), (2, 2)])
def test_as_many_failures_are_retried_as_allowed(limit: int, retries: int) -> None:
    budgets = FailureBudgets(FailureConfig(max_failures=limit))
    assert [budgets.charge("worker").retry for _ in range(retries + 1)] == [True] * retries + [
        False
    ]


def test_budgets_are_separate_and_minus_one_is_no_limit() -> None:
    budgets = FailureBudgets(FailureConfig(max_failures=0, max_preemption_failures=-1))
    assert all(budgets.charge("preemption").retry for _ in range(50))
    assert not budgets.charge("worker").retry


def test_controller_failures_without_progress_end_the_run_and_progress_resets_them() -> None:
    budgets = FailureBudgets(FailureConfig())
    for _ in range(10):
        assert budgets.charge("controller").retry
        budgets.progressed()
    decisions = [budgets.charge("controller").retry for _ in range(FUTILE_CONTROLLER_FAILURES)]
    assert decisions == [True] * (FUTILE_CONTROLLER_FAILURES - 1) + [False]


@pytest.mark.parametrize(
    ("available", "size"),
    [
        ({"CPU": 1.0}, 2),
        ({"CPU": 3.0}, 3),
        ({"CPU": 100.0}, 4),
        ({}, 2),
        ({"CPU": 3.9999999999}, 4),
    ],
)
def test_a_group_takes_what_is_free_between_its_bounds(
    available: dict[str, float], size: int
) -> None:
    assert group_size(minimum=2, maximum=4, bundle={"CPU": 1}, available=available) == size


def test_the_scarcest_resource_decides() -> None:
    assert (
        group_size(
            minimum=1, maximum=8, bundle={"CPU": 1, "GPU": 0.5}, available={"CPU": 8, "GPU": 1}
        )
        == 2
    )
