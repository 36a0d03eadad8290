"""Nodes of a Ray cluster that are drained: the ranks are told, save their work, and the run goes on
elsewhere.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import train
from syncline.testing.clusters import RayCluster
from syncline.testing.waiting import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]


def fit(tmp_path: Path, config: dict[str, Any]) -> Any:
    """The function is one of this one's, and travels by value: the cluster's workers cannot import
    this module.
    """

    def train_until_told(config: dict[str, Any]) -> list[Any]:
        """Waits, in the first attempt, for the word that its node goes; saves and returns then."""
        context, checkpoint = train.get_context(), train.get_checkpoint()
        if checkpoint is not None:
            return [
                Path(checkpoint.path, "told").read_text(),
                syncline.get_runtime_context().get_node_id(),
            ]
        Path(config["started"], str(context.get_world_rank())).write_text(
            syncline.get_runtime_context().get_node_id()
        )
        if config["signal"]:
            os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + 100
        while (info := train.get_preemption_info()) is None:
            assert time.monotonic() < deadline, "nobody told this rank"
            time.sleep(0.05)
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "told").write_text(repr(info.preempted_node_to_ranks))
            train.report({"told": True}, checkpoint=train.Checkpoint.from_directory(directory))
        return []

    return train.DataParallelTrainer(
        train_until_told,
        train_loop_config={"started": str(tmp_path), **config},
        scaling_config=train.ScalingConfig(num_workers=1),
        run_config=train.RunConfig(
            name="run",
            storage_path=tmp_path / "runs",
            failure_config=train.FailureConfig(max_failures=0),
        ),
    ).fit()


def test_a_drained_node_is_told_to_its_ranks_and_the_run_goes_on_elsewhere(tmp_path: Path) -> None:
    with RayCluster(num_cpus=0) as cluster:
        cluster.add_node("a", num_cpus=1)
        with syncline.init(address=cluster.address):
            (first,) = [node["NodeID"] for node in syncline.nodes() if node["Resources"].get("CPU")]
            drain = _when_started(
                tmp_path / "0",
                lambda: (
                    cluster.add_node("b", num_cpus=1),
                    cluster.drain_node(first, seconds_left=60),
                ),
            )
            told, second = fit(tmp_path, {"signal": False}).return_value
            drain.join()
            assert told == repr({first: [0]})
            assert second != first


def test_sigterm_to_a_worker_of_ray_is_a_notice(tmp_path: Path) -> None:
    with RayCluster(num_cpus=1) as cluster, syncline.init(address=cluster.address):
        told, node = fit(tmp_path, {"signal": True}).return_value
        assert told == repr({node: [0]})


def _when_started(path: Path, then: Any) -> Any:
    def wait() -> None:
        eventually(path.exists, what="training has begun")
        then()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread
