"""Live actions on a run of a Ray cluster, from a program that is connected to the cluster and
cannot see the controller's socket.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import syncline
from syncline import runs
from syncline.dashboard.run_control import ActionFailed, LiveRun, ProgramUnreachable, reach
from syncline.testing.clusters import RayCluster
from syncline.testing.waiting import GENEROUS_S, eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

PROGRAM = """
import sys, time
from pathlib import Path
from syncline import train

directory = sys.argv[1]

def train_loop():
    while not Path(directory, "over").exists():
        sum(number * number for number in range(20_000))
        train.report({"loss": 1.0})

train.DataParallelTrainer(
    train_loop,
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(name="far", storage_path=directory),
).fit()
"""


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    with RayCluster(num_cpus=3) as cluster:
        yield cluster


def test_a_run_on_a_cluster_is_asked_through_its_actor(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    program = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], env=cluster.environment()
    )
    (tmp_path / "sessions").mkdir()
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path / "sessions"))
    try:
        eventually(
            lambda: (tmp_path / "far" / "metrics.jsonl").exists(),
            within_s=2 * GENEROUS_S,
            what="the run has begun",
        )
        run = runs.open(tmp_path / "far")
        assert reach(run) is None
        found = eventually(lambda: reach(run, cluster.address), what="the run is reached")
        looks_and_profiles(found, tmp_path / "far")
        (tmp_path / "over").touch()
        assert program.wait(GENEROUS_S) == 0
        eventually(lambda: reach(run) is None, what="its actor has left")
        with pytest.raises(ProgramUnreachable, match="no longer running"):
            found.stacks()
    finally:
        program.kill()
        syncline.shutdown()


def looks_and_profiles(found: LiveRun, path: Path) -> None:
    assert [member["rank"] for member in found.members()] == [0, 1]
    assert "train_loop" in found.stacks(["1"])["1"]
    assert b"train_loop" in (path / found.profile(1, "cpu", seconds=1)).read_bytes()
    with pytest.raises(ActionFailed, match="has not imported torch|no optimizer"):
        found.profile(0, "torch", seconds=1)
    with pytest.raises(ActionFailed, match="only ranks 0-1"):
        found.profile(5, "cpu")
