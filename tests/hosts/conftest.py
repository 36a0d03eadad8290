"""One cluster on three hosts for all tests of this folder.

If simulated hosts are not permitted, all three are this machine, and tests that need separate hosts
(the fixture `apart`) are skipped with the reason.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from syncline.testing.clusters import RayCluster
from tests.hosts.lab import NODES, STORE_BYTES, Lab
from tests.hosts.rig import hosts


@pytest.fixture(scope="package")
def whole_lab() -> Iterator[Lab]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    with (
        hosts(1 + len(NODES)) as rig,
        RayCluster(num_cpus=1, host=rig[0], object_store_memory=STORE_BYTES) as cluster,
    ):
        yield Lab(rig, cluster)


@pytest.fixture
def lab(whole_lab: Lab) -> Iterator[Lab]:
    """The cluster with both nodes and all links."""
    whole_lab.start_missing()
    yield whole_lab
    for number in range(len(whole_lab.rig)):
        whole_lab.rig.heal(whole_lab.rig[number])


@pytest.fixture
def apart(lab: Lab) -> Lab:
    """Skip the test if the hosts are this machine."""
    if lab.rig.why_not is not None:
        pytest.skip(lab.rig.why_not)
    return lab
