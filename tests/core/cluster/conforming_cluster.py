"""Conformance suites on a Ray cluster, for both ways to connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from syncline.testing import conformance
from syncline.testing.clusters import SharedCluster

DIFFERENCES = {
    "Generators.test_generator_can_be_handed_to_a_task": (
        "Ray's generators cannot leave the process that made the call"
    ),
    "TaskCrashes.test_crash_error_has_signal_and_log_tail": (
        "Ray reports neither signal nor log of a task's worker"
    ),
    "TaskCrashes.test_crash_error_has_the_exit_code": (
        "Ray does not report the exit code of a task's worker"
    ),
    "Environments.test_environment_that_installs_is_refused": "a cluster installs packages",
    "NestedTasks.test_actor_that_waits_for_tasks_does_not_deadlock": (
        "an actor keeps its CPUs while it waits"
    ),
}

TRAITS = conformance.EngineTraits(processes=True, parallel=True, differences=DIFFERENCES)


def suites_on(clusters: SharedCluster) -> dict[str, Any]:
    """Return all suites, and a fixture that stops the cluster, as names for a test module."""
    return {
        "no_cluster_left": _no_cluster_left(clusters),
        **conformance.tests_for_engine(clusters.options, traits=TRAITS),
    }


def _no_cluster_left(clusters: SharedCluster) -> Callable[..., Iterator[None]]:
    @pytest.fixture(scope="module", autouse=True)
    def no_cluster_left() -> Iterator[None]:
        yield
        clusters.stop()

    return no_cluster_left
