"""The engine through Ray Client does what every engine does, but for the differences listed here
and explained in docs/engines.md.
"""

from __future__ import annotations

import pytest
from conforming_cluster import suites_on

from syncline.testing.clusters import HAS_CLIENT, SharedCluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.skipif(
        not HAS_CLIENT, reason="gRPC for Python is not installed: pip install 'ray[client]'"
    ),
]

globals().update(suites_on(SharedCluster(through_client=True)))
