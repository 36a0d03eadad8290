"""Conformance of the engine on Ray Core; docs/engines.md explains the differences."""

from __future__ import annotations

import importlib.util

import pytest

from tests.core.cluster.conforming_cluster import SharedCluster, suites_on

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

globals().update(suites_on(SharedCluster()))
