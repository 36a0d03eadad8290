"""The engine on Ray Core does what every engine does, but for the differences listed here and explained in docs/engines.md."""

from __future__ import annotations

import importlib.util

import pytest

from syncline.testing import conformance

pytestmark = [
    pytest.mark.processes,
    pytest.mark.xdist_group("ray"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

DIFFERENCES = {
    "NestedTasks.test_actor_that_waits_for_tasks_does_not_deadlock": "an actor keeps the CPUs that it asked for while it waits",
}

TRAITS = conformance.EngineTraits(processes=True, parallel=True, differences=DIFFERENCES)

globals().update(conformance.tests_for_engine({"address": "local"}, traits=TRAITS))
