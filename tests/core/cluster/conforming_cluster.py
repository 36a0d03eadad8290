"""Conformance suites on a Ray cluster, for both ways to connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from syncline.testing import conformance
from syncline.testing.clusters import RayCluster

DIFFERENCES = {
    "Generators.test_generator_can_be_handed_to_a_task": (
        "Ray's generators cannot leave the process that made the call"
    ),
    "Generators.test_retry_of_an_exception_repeats_a_number_of_values": (
        "Ray does not retry a generator whose number of results is fixed"
    ),
    "TaskCrashes.test_crash_error_has_signal_and_log_tail": (
        "Ray reports neither signal nor log of a task's worker"
    ),
    "TaskCrashes.test_crash_error_has_the_exit_code": (
        "Ray does not report the exit code of a task's worker"
    ),
    "FreedValues.test_freed_value_is_an_error": "Ray 2.60 frees values with their last reference",
    "Environments.test_environment_that_installs_is_refused": "a cluster installs packages",
    "NestedTasks.test_actor_that_waits_for_tasks_does_not_deadlock": (
        "an actor keeps its CPUs while it waits"
    ),
    "Actors.test_worker_may_run_the_task_that_makes_the_argument_of_its_earlier_call": (
        "Ray keeps the order of all calls that one worker process makes"
    ),
}

CLIENT_DIFFERENCES = {
    "StateApi.test_output_of_an_actor_is_in_a_log": "the log files are on nodes of the cluster"
}

TRAITS = conformance.EngineTraits(processes=True, parallel=True, differences=DIFFERENCES)


class SharedCluster:
    """A cluster that is shared by suites with equal machines."""

    _MACHINE_OPTIONS = ("num_cpus", "num_gpus", "resources")

    def __init__(self, *, through_client: bool = False) -> None:
        """`through_client`: connect with Ray Client."""
        self._through_client = through_client
        self._machine: dict[str, Any] = {}
        self._cluster: RayCluster | None = None

    def options(self, suite_options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of `init` for a suite; the cluster is replaced if needed."""
        machine = {
            name: suite_options[name] for name in self._MACHINE_OPTIONS if name in suite_options
        }
        if self._cluster is None or machine != self._machine:
            self.stop()
            self._machine, self._cluster = machine, RayCluster(**machine)
            self._cluster.start()
        own = {name: value for name, value in suite_options.items() if name not in machine}
        return {**own, "address": self._address(self._cluster)}

    @property
    def traits(self) -> conformance.EngineTraits:
        """Traits of the engine on this cluster."""
        more = CLIENT_DIFFERENCES if self._through_client else {}
        return replace(TRAITS, differences={**DIFFERENCES, **more})

    def stop(self) -> None:
        """Stop the cluster, if any."""
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None

    def _address(self, cluster: RayCluster) -> str:
        if not self._through_client:
            return cluster.address
        cluster.wait_for_client()
        return cluster.client_address


def suites_on(clusters: SharedCluster) -> dict[str, Any]:
    """Return all suites, and a fixture that stops the cluster, as names for a test module."""
    return {
        "no_cluster_left": _no_cluster_left(clusters),
        **conformance.tests_for_engine(clusters.options, traits=clusters.traits),
    }


def _no_cluster_left(clusters: SharedCluster) -> Callable[..., Iterator[None]]:
    @pytest.fixture(scope="module", autouse=True)
    def no_cluster_left() -> Iterator[None]:
        yield
        clusters.stop()

    return no_cluster_left
