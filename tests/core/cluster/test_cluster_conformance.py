"""The engine on Ray Core does what every engine does, but for the differences listed here and
explained in docs/engines.md.
"""

from __future__ import annotations

import importlib.util

import pytest
from conforming_cluster import suites_on

from syncline.testing.clusters import SharedCluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

globals().update(suites_on(SharedCluster()))
