"""Memory snapshots of one run, for its controller: choice of the snapshot that an attempt starts
from, and removal at the end.
"""

from __future__ import annotations

import logging
import platform
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from syncline.core import api
from syncline.core.refs import ObjectRef
from syncline.exceptions import RayError
from syncline.train.snapshots import directory as directories
from syncline.train.snapshots import node_files
from syncline.train.snapshots.choice import Choice, FoundSnapshot, choose, copy_nodes, sources
from syncline.train.snapshots.code_version import code_version
from syncline.train.snapshots.config import SnapshotSpec
from syncline.train.snapshots.slot import SnapshotId
from syncline.train.workers.group import TrainingGroup
from syncline.train.workers.reservation import living_nodes
from syncline.train.workers.spec import RunSpec, SerializedValue

logger = logging.getLogger("syncline")

NODE_ANSWER_S = 15.0
"""Seconds that a node without workers may take to list its snapshots."""


class RunSnapshots:
    """Snapshots of one run. Not thread-safe.

    Args:
        spec: The run.
        run_path: Path or URI of the run directory.
        started: Time when the run first started, in seconds since the epoch.
        node_id: Node of this process.
        earlier_nodes: Nodes on which ranks of the run were before this call of `fit()`.
        refused: Last snapshot from which the program could not continue; None for none.
    """

    def __init__(
        self,
        spec: RunSpec,
        *,
        run_path: str,
        started: float,
        node_id: str,
        earlier_nodes: Iterable[str] = (),
        refused: SnapshotId | None = None,
    ) -> None:
        self._spec = spec
        self._directory = directories.directory_of(run_path, started)
        self._node_id = node_id
        self._versions = _versions(spec)
        self._remote_nodes: dict[str, int] = {}  # other node of the group -> one of its ranks
        self._known_nodes = set(earlier_nodes)  # of all attempts
        self._refused = refused
        self.chosen = Choice()
        """Snapshot that the current attempt starts from."""
        directories.sweep()

    def choose(self, group: TrainingGroup, latest_report: int) -> SnapshotSpec:
        """Choose the snapshot that the attempt of a started group begins with.

        Args:
            group: Workers of the attempt.
            latest_report: Number of the report of the latest checkpoint; -1 without one.
        """
        found = self._found(group)
        choice = self._chosen(found, len(group), latest_report)
        if choice.is_incomplete:  # nodes that have restarted since have other ids
            found |= self._found_by_tasks(living_nodes() - found.keys())
            choice = self._chosen(found, len(group), latest_report)
        if self._directory.exists() or choice.step is not None:
            directories.join(self._directory)  # also on a node without ranks, for the count
            choice = directories.count_start(self._directory, choice)
        if choice.refusal:
            logger.warning("%s. The attempt starts from the last checkpoint.", choice.refusal)
        self.chosen = choice
        config = self._spec.run_config.snapshot
        spec = SnapshotSpec(
            directory=str(self._directory),
            config=config,
            versions=self._versions,
            resume_step=choice.step,
            resume_attempt=choice.attempt,
            attempt=time.time_ns(),
            sources=sources(choice, found, group.workers),
            resumes_readers=self._spec.data_config.resume,
        )
        if spec.copy_every_s is None:
            return spec
        return replace(spec, copy_nodes=copy_nodes(group.workers))

    def refuse(self, last: SnapshotId) -> None:
        """Use no snapshots up to `last` any more: the program cannot continue from them. Copies of
        them may remain on any node.
        """
        self._refused = last if self._refused is None else max(last, self._refused)

    def remove(self, group: TrainingGroup) -> None:
        """Delete the snapshots on all nodes, as the training functions have returned."""
        remote = [
            group.execute_single_async(rank, node_files.remove_on_node, str(self._directory))
            for rank in self._remote_nodes.values()
        ]
        for node in self._other_nodes():
            node_files.run_on_node(node, node_files.remove_on_node, str(self._directory))
        group.gather(remote)
        directories.remove(self._directory)

    @property
    def exist(self) -> bool:
        """True if the run has taken snapshots on this node."""
        return directories.has_snapshots(self._directory)

    @property
    def may_exist_elsewhere(self) -> bool:
        """True if the run is to take snapshots and has had ranks on other nodes."""
        others = self._known_nodes - {self._node_id}
        return bool(others) and self._spec.run_config.snapshot is not None

    def leave(self) -> None:
        """Let the snapshots expire, as the run has ended without finishing."""
        directories.leave(self._directory)

    def _chosen(
        self, found: Mapping[str, list[FoundSnapshot]], world_size: int, latest_report: int
    ) -> Choice:
        usable = {
            node: [
                each for each in of_node if self._refused is None or each.header.id > self._refused
            ]
            for node, of_node in found.items()
        }
        return choose(
            usable, world_size=world_size, versions=self._versions, after_report=latest_report
        )

    def _found(self, group: TrainingGroup) -> dict[str, list[FoundSnapshot]]:
        """Return the snapshots on the living nodes of this attempt and of earlier ones."""
        first_ranks: dict[str, int] = {}
        for worker in group.workers:
            first_ranks.setdefault(worker.node_id, worker.rank)
        self._remote_nodes = {
            node: rank for node, rank in first_ranks.items() if node != self._node_id
        }
        others = self._other_nodes()
        self._known_nodes |= first_ranks.keys()
        remote = [
            group.execute_single_async(rank, node_files.list_on_node, str(self._directory))
            for rank in self._remote_nodes.values()
        ]
        found: dict[str, list[FoundSnapshot]] = {
            self._node_id: directories.list_snapshots(self._directory)
        }
        found |= dict(zip(self._remote_nodes, group.gather(remote), strict=True))
        return found | self._found_by_tasks(others)

    def _other_nodes(self) -> frozenset[str]:
        """Return the living nodes of earlier attempts without workers of this one."""
        others = self._known_nodes - self._remote_nodes.keys() - {self._node_id}
        return frozenset(others) & living_nodes() if others else frozenset()

    def _found_by_tasks(self, nodes: Iterable[str]) -> dict[str, list[FoundSnapshot]]:
        """Return the snapshots on nodes without workers, if they answer in time."""
        pending: dict[ObjectRef[list[FoundSnapshot]], str] = {
            node_files.run_on_node(node, node_files.list_on_node, str(self._directory)): node
            for node in nodes
        }
        if not pending:
            return {}
        ready, _ = api.wait(list(pending), num_returns=len(pending), timeout=NODE_ANSWER_S)
        found: dict[str, list[FoundSnapshot]] = {}
        for ref in ready:
            try:
                found[pending[ref]] = api.get(ref)
            except RayError as error:  # it has died meanwhile
                logger.debug("The snapshots of node %s are unknown: %s", pending[ref], error)
        return found


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
