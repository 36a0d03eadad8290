"""A node dies with the snapshots of its ranks: training continues from their copies elsewhere.

The nodes are on one machine. Each one has its own file system in memory, as machines do.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from syncline.testing.clusters import Host, RayCluster
from syncline.testing.waiting import GENEROUS_S, eventually
from syncline.train.snapshots.slot import SnapshotSlot

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

NODES = ("a", "b", "c")
"""One more than there are ranks."""

PROGRAM = """
import json, os, sys, time
from pathlib import Path
import numpy as np
import syncline
from syncline import train

shared = Path(sys.argv[1])


def loop():
    rank = train.get_context().get_world_rank()
    state = train.get_snapshot() or {"step": 0, "weights": np.full(3_000_000, rank, np.float64)}
    steps = (shared / f"steps-{rank}").open("a", buffering=1)
    while not (shared / "end").exists() or state["step"] < int((shared / "end").read_text()):
        train.collective.barrier()
        state["step"] += 1
        state["weights"] *= 0.999
        state["weights"] += state["step"]
        steps.write(f"{state['step']}\\n")
        train.snapshot(state)
    expected = np.float64(rank)
    for step in range(1, state["step"] + 1):
        expected = expected * 0.999 + step
    assert (state["weights"] == expected).all(), (state, expected)
    return state["step"]


with syncline.init():
    result = train.DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2, placement_strategy="SPREAD"),
        run_config=train.RunConfig(
            name="run",
            storage_path=str(shared / "runs"),
            failure_config=train.FailureConfig(max_failures=1),
            snapshot=train.SnapshotConfig(automatic=False, copy_every_s=0.0),
        ),
    ).fit()
    (shared / "value").write_text(str(result.return_value))
"""


def copies(memory: Path) -> dict[int, set[int]]:
    """Return the steps of complete copies on a node, by rank."""
    steps: dict[int, set[int]] = {}
    for path in memory.glob("*/*/copy-*"):
        slot = SnapshotSlot(path)
        header = slot.header()
        slot.close()
        if header is not None:
            steps.setdefault(header.rank, set()).add(header.step)
    return steps


def memory_of(tmp_path: Path, name: str) -> Host:
    (tmp_path / name).mkdir()
    return Host(enter=("env", f"SYNCLINE_SHARED_MEMORY={tmp_path / name}"))


def test_a_killed_node_costs_the_steps_since_the_last_copy(tmp_path: Path) -> None:
    with RayCluster(num_cpus=0, host=memory_of(tmp_path, "head")) as cluster:
        for name in NODES:
            cluster.add_node(name, num_cpus=1, host=memory_of(tmp_path, name))
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            env=cluster.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=tmp_path,
        )
        try:
            eventually(
                lambda: _complete(tmp_path) or process.poll() is not None,
                within_s=2 * GENEROUS_S,
                what="all ranks have copied a step",
            )
            assert process.poll() is None, process.communicate()[0]
            (victim,) = [name for name in NODES if list((tmp_path / name).glob("*/*/rank-00001.0"))]
            common = max(_complete(tmp_path))
            cluster.kill_node(victim)
            steps = _steps(tmp_path)
            (tmp_path / "end").write_text(str(steps + 20))
            output, _ = process.communicate(timeout=2 * GENEROUS_S)
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == 0, output
        assert int((tmp_path / "value").read_text()) >= steps + 20
        # An attempt does not start while the cluster does not know that the node is dead.
        starts = re.findall(r"attempt \d+ starts (.+)", output)
        assert len(starts) == 1, output
        found = re.fullmatch(r"from the memory snapshot of step (\d+)", starts[0].strip())
        assert found is not None, output
        assert common <= int(found.group(1)) <= steps + 20
        for name in set(NODES) - {victim}:
            assert not list((tmp_path / name).glob("*/*")), "a finished run deletes its snapshots"


def _complete(tmp_path: Path) -> set[int]:
    """Return the steps that both ranks have copied to the other node."""
    found: dict[int, set[int]] = {}
    for name in NODES:
        found |= copies(tmp_path / name)
    return found.get(0, set()) & found.get(1, set())


def _steps(tmp_path: Path) -> int:
    return max(int(line) for line in (tmp_path / "steps-0").read_text().split())
