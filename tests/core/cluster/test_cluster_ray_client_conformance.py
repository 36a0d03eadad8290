"""Conformance of the engine through Ray Client; docs/engines.md explains the differences."""

from __future__ import annotations

import pytest

from syncline.testing.clusters import HAS_CLIENT
from tests.core.cluster.conforming_cluster import SharedCluster, suites_on

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.skipif(
        not HAS_CLIENT, reason="gRPC for Python is not installed: pip install 'ray[client]'"
    ),
]

globals().update(suites_on(SharedCluster(through_client=True)))
