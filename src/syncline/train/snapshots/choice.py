"""Choice of the snapshot that an attempt starts from, and of the nodes for copies. Pure functions.

A snapshot is used if every rank has it: in its own file or in a copy, on any node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from syncline.train.backend import Worker
from syncline.train.snapshots.config import SnapshotSource
from syncline.train.snapshots.slot import FORMAT, SnapshotHeader, SnapshotId


@dataclass(frozen=True, kw_only=True)
class FoundSnapshot:
    """Complete snapshot of one rank in a file."""

    header: SnapshotHeader
    file_name: str
    """Name of the file in the run's directory."""

    @property
    def is_copy(self) -> bool:
        """True for a copy that was made for another node."""
        return self.file_name.startswith("copy-")


Found = Mapping[str, list[FoundSnapshot]]
"""Complete snapshots by node."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Snapshot that an attempt starts from."""

    step: int | None = None
    """Its step; None to start without a snapshot."""
    attempt: int = 0
    """Attempt that took it."""
    next_report: int = 0
    """Number of the report after it."""
    taken_at: float = 0.0
    """Time when the last rank had taken it, in seconds since the epoch."""
    refusal: str = ""
    """Why existing snapshots are not used, for a warning; "" if there is nothing to say."""
    is_incomplete: bool = False
    """True if no snapshot is complete on all ranks; the files of further nodes may complete one."""


def choose(
    found: Found, *, world_size: int, versions: Mapping[str, str], after_report: int
) -> Choice:
    """Return the newest snapshot that all ranks have.

    Args:
        found: Complete snapshots of all nodes.
        world_size: Number of ranks of the attempt.
        versions: Versions of this program.
        after_report: Number of the report of the latest checkpoint; -1 without one. Older
            snapshots are not used.
    """
    known = [each.header for of_node in found.values() for each in of_node]
    if not known:
        return Choice()
    newest = max(known, key=lambda header: header.id)
    subject = f"The memory snapshot of step {newest.step} is not used, because it was taken"
    if newest.format != FORMAT:
        return Choice(
            refusal=f"{subject} in format {newest.format}, and this syncline reads {FORMAT}"
        )
    for name in sorted({*newest.versions, *versions}):
        then, now = newest.versions.get(name, "none"), versions.get(name, "none")
        if then != now:
            return Choice(refusal=f"{subject} with {name} {then}, and this run has {name} {now}")
    if newest.world_size != world_size:
        return Choice(
            refusal=f"{subject} by {newest.world_size} ranks, and this attempt has {world_size}"
        )
    by_rank: dict[int, set[SnapshotId]] = {rank: set() for rank in range(world_size)}
    for header in known:
        if header.world_size == world_size and header.versions == newest.versions:
            by_rank[header.rank].add(header.id)
    common = set.intersection(*by_rank.values())
    if not common:
        return Choice(refusal=_no_common_step(by_rank), is_incomplete=True)
    latest = max(common)
    chosen = [header for header in known if header.id == latest]
    next_report = max(header.next_report for header in chosen)
    if next_report <= after_report:
        return Choice()  # the checkpoint is newer
    return Choice(
        step=latest.step,
        attempt=latest.attempt,
        next_report=next_report,
        taken_at=max(header.taken_at for header in chosen),
    )


def _no_common_step(by_rank: Mapping[int, set[SnapshotId]]) -> str:
    texts = ", ".join(
        f"rank {rank}: {' and '.join(str(each.step) for each in sorted(found)) or 'none'}"
        for rank, found in list(by_rank.items())[:8]
    )
    return f"The memory snapshots are not used, because no step is complete on all ranks ({texts})"


def sources(choice: Choice, found: Found, workers: Sequence[Worker]) -> dict[int, SnapshotSource]:
    """Return the place of the chosen snapshot for each rank that does not have it in its own
    file on its node. A copy on the rank's node is preferred to files of other nodes.
    """
    if choice.step is None:
        return {}
    wanted = SnapshotId(choice.attempt, choice.step)
    places: dict[int, list[tuple[str, FoundSnapshot]]] = {}
    for node, of_node in found.items():
        for each in of_node:
            if each.header.id == wanted:
                places.setdefault(each.header.rank, []).append((node, each))
    result = {}
    for worker in workers:
        of_rank = places[worker.rank]
        here = [each for node, each in of_rank if node == worker.node_id]
        if any(not each.is_copy for each in here):
            continue
        node, best = (worker.node_id, here[0]) if here else of_rank[0]
        result[worker.rank] = SnapshotSource(node_id=node, file_name=best.file_name)
    return result


def copy_nodes(workers: Sequence[Worker]) -> dict[int, str]:
    """Return the node for the copies of each rank: the next one in the order of the nodes' first
    ranks. Empty on a single node.
    """
    nodes = list(dict.fromkeys(worker.node_id for worker in workers))
    if len(nodes) == 1:
        return {}
    following = dict(zip(nodes, [*nodes[1:], nodes[0]], strict=True))
    return {worker.rank: following[worker.node_id] for worker in workers}
