"""Memory snapshots of one run, for its controller: choice of the snapshot that an attempt starts
from, and removal at the end.
"""

from __future__ import annotations

import logging
import platform
import sys
from collections.abc import Mapping

from syncline.train.snapshots import directory as directories
from syncline.train.snapshots.code_version import code_version
from syncline.train.snapshots.config import SnapshotSpec
from syncline.train.snapshots.directory import Choice, Headers, choose
from syncline.train.workers.group import TrainingGroup
from syncline.train.workers.spec import RunSpec, SerializedValue

logger = logging.getLogger("syncline")


class RunSnapshots:
    """Snapshots of one run. Not thread-safe.

    Args:
        spec: The run.
        run_path: Path or URI of the run directory.
        started: Time when the run first started, in seconds since the epoch.
        node_id: Node of this process.
    """

    def __init__(self, spec: RunSpec, *, run_path: str, started: float, node_id: str) -> None:
        self._spec = spec
        self._directory = directories.directory_of(run_path, started)
        self._node_id = node_id
        self._versions = _versions(spec)
        self._remote_nodes: dict[str, int] = {}  # node -> one of its ranks
        self.chosen = Choice()
        """Snapshot that the current attempt starts from."""
        directories.sweep()

    def choose(self, group: TrainingGroup, latest_report: int) -> SnapshotSpec:
        """Choose the snapshot that the attempt of a started group begins with.

        Args:
            group: Workers of the attempt.
            latest_report: Number of the report of the latest checkpoint; -1 without one.
        """
        choice = choose(
            self._headers(group),
            world_size=len(group),
            versions=self._versions,
            after_report=latest_report,
        )
        if self._directory.exists():
            directories.join(self._directory)
            choice = directories.count_start(self._directory, choice)
        if choice.refusal:
            logger.warning("%s. The attempt starts from the last checkpoint.", choice.refusal)
        self.chosen = choice
        return SnapshotSpec(
            directory=str(self._directory),
            config=self._spec.run_config.snapshot,
            versions=self._versions,
            resume_step=choice.step,
            resumes_readers=self._spec.data_config.resume,
        )

    def remove(self, group: TrainingGroup) -> None:
        """Delete the snapshots on all nodes, as the training functions have returned."""
        remote = [
            group.execute_single_async(rank, directories.remove, self._directory)
            for rank in self._remote_nodes.values()
        ]
        group.gather(remote)
        directories.remove(self._directory)

    @property
    def exist(self) -> bool:
        """True if the run has taken snapshots on this node."""
        return directories.has_snapshots(self._directory)

    def leave(self) -> None:
        """Let the snapshots expire, as the run has ended without finishing."""
        directories.leave(self._directory)

    def _headers(self, group: TrainingGroup) -> Headers:
        ranks: dict[str, list[int]] = {}
        for worker in group.workers:
            ranks.setdefault(worker.node_id, []).append(worker.rank)
        self._remote_nodes = {
            node: of_node[0] for node, of_node in ranks.items() if node != self._node_id
        }
        headers = directories.headers_on_this_node(self._directory, ranks.get(self._node_id, ()))
        remote = [
            group.execute_single_async(
                rank, directories.headers_on_this_node, self._directory, ranks[node]
            )
            for node, rank in self._remote_nodes.items()
        ]
        for found in group.gather(remote):
            headers.update(found)
        return headers


def _versions(spec: RunSpec) -> Mapping[str, str]:
    """Return the versions that snapshots of this program have."""
    function, config = spec.train_function, spec.run_config.snapshot
    return {
        # A program with automatic snapshots restores nothing of those by calls, and vice versa, but
        # its data would continue at the snapshot.
        "automatic snapshots": "on" if config is not None and config.automatic else "off",
        "syncline": sys.modules["syncline"].__version__,
        "Python": platform.python_version(),
        "training function": spec.code_version
        if isinstance(function, SerializedValue)
        else code_version(function),
    }
