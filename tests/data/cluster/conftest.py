"""One Ray cluster of two nodes, which all tests of this folder share; each file connects to it
once.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import syncline
from syncline.data.context import DataContext
from syncline.testing.clusters import RayCluster

Run = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    """A head with two CPUs, and a node "second" with one CPU and two of the resource "special"."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    with RayCluster(num_cpus=2) as cluster:
        cluster.add_node("second", num_cpus=1, resources={"special": 2})
        yield cluster


@pytest.fixture(scope="module")
def engine(cluster: RayCluster) -> Iterator[RayCluster]:
    """This process is a program of the cluster."""
    shows, DataContext.get_current().enable_progress_bars = (
        DataContext.get_current().enable_progress_bars,
        False,
    )
    syncline.init(cluster.address)
    yield cluster
    syncline.shutdown()
    DataContext.get_current().enable_progress_bars = shows


@pytest.fixture
def program(cluster: RayCluster, tmp_path: Path) -> Iterator[Run]:
    """Start a program that uses the cluster, with `shared` for its directory; what still runs at
    the end of the test is killed.
    """
    started: list[subprocess.Popen[str]] = []

    def start(text: str) -> subprocess.Popen[str]:
        path = tmp_path / f"program{len(started)}.py"
        path.write_text(
            f"import os\nfrom pathlib import Path\nshared = Path({os.fspath(tmp_path)!r})\n{text}"
        )
        process = subprocess.Popen(
            [sys.executable, str(path)],
            env=cluster.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=tmp_path,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
