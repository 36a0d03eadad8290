"""One cluster on three hosts for all tests of this folder.

Where hosts of their own are not permitted, all three are this machine, and tests that need more
(the fixture `apart`) skip with the reason.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from hosts.lab import NODES, STORE_BYTES, Lab
from syncline.testing.clusters import RayCluster
from syncline.testing.hosts import hosts


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
    """With both nodes, and every link whole."""
    whole_lab.start_missing()
    yield whole_lab
    for number in range(len(whole_lab.rig)):
        whole_lab.rig.heal(whole_lab.rig[number])


@pytest.fixture
def apart(lab: Lab) -> Lab:
    """Skip where the hosts are only this machine."""
    if lab.rig.why_not is not None:
        pytest.skip(lab.rig.why_not)
    return lab
