"""Snapshot files of other nodes: tasks of the engine that read and write them.

A copy is written part by part, and becomes complete at the end. Each part is one task with two
arguments of the engine's object store, so the memory of both nodes needs room for two parts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from syncline.core import api
from syncline.core.placement import NodeAffinitySchedulingStrategy
from syncline.core.refs import ObjectRef
from syncline.core.remote import remote
from syncline.train.snapshots import directory as directories
from syncline.train.snapshots import reaper
from syncline.train.snapshots.choice import FoundSnapshot
from syncline.train.snapshots.config import SnapshotSource
from syncline.train.snapshots.slot import SnapshotId, SnapshotSlot, without_mark, write_all

PART_BYTES = 32 * 1024**2
"""Bytes that one task reads or writes."""
_IN_FLIGHT = 2
"""Parts that are on their way at a time."""
_RETRIES = 2
"""Further processes that may try a part, if they are killed."""

Part = npt.NDArray[np.uint8]
R = TypeVar("R")


def run_on_node(node_id: str, function: Callable[..., R], *arguments: object) -> ObjectRef[R]:
    """Run a function on a node that has the package; fails if the node is dead."""
    task = remote(function).options(
        num_cpus=0,
        max_retries=_RETRIES,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
    )
    ref: ObjectRef[R] = task.remote(*arguments)
    return ref


# -- from the node of a rank to another one


def send(
    slot: SnapshotSlot,
    node_id: str,
    *,
    keep_s: float,
    kept: SnapshotId | None,
    is_stopped: Callable[[], bool],
) -> None:
    """Copy the complete snapshot of a slot to another node. Nothing overwrites the slot meanwhile.

    Args:
        slot: The snapshot.
        node_id: The other node.
        keep_s: Seconds that the copy remains after the processes of the run have died.
        kept: The last snapshot that all ranks have copied, or the one that the attempt started
            from; its copy is kept until the next one is complete on all ranks.
        is_stopped: Returns True to leave the copy incomplete.

    Raises:
        OSError: The file system of the other node is full.
        RayError: The other node is dead.
    """
    header = slot.header()
    assert header is not None, "nothing overwrites the slot"
    directory, nbytes = str(slot.path.parent), slot.nbytes
    name = directories.copy_name(header.rank, header.attempt, header.step)
    api.get(run_on_node(node_id, begin_copy, directory, name, nbytes, keep_s, kept))
    pending: list[ObjectRef[None]] = []
    for offset in range(0, nbytes, PART_BYTES):
        if is_stopped():
            return
        if len(pending) == _IN_FLIGHT:
            api.get(pending.pop(0))
        part: Part = np.empty(min(PART_BYTES, nbytes - offset), np.uint8)
        slot.read_into(offset, memoryview(part.data).cast("B"))
        pending.append(run_on_node(node_id, write_part, directory, name, offset, part))
    api.get(pending)
    api.get(run_on_node(node_id, finish_copy, directory, name))


def begin_copy(
    directory: str, name: str, nbytes: int, keep_s: float, kept: SnapshotId | None
) -> None:
    """Allocate the file of a copy on this node, in place of copies that no restart needs."""
    here = directories.on_this_node(directory)
    path = here / name
    of_rank = name.partition(".")[0]
    directories.join(here)
    try:
        if not reaper.has_reaper(str(here)):
            directories.start_reaper(here, keep_s)
        for old in here.glob(f"{of_rank}.*"):
            if kept is None or old.name != f"{of_rank}.{kept.attempt}.{kept.step}":
                old.unlink(missing_ok=True)
        if kept is not None and kept.attempt == directories.attempt_of_copy(path):
            directories.remove_earlier(here, kept.attempt)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, nbytes)  # a full file system is an error here
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(fd)
    finally:
        directories.leave(here)


def write_part(directory: str, name: str, offset: int, part: Part) -> None:
    """Write bytes of a copy on this node."""
    data = part
    if offset == 0:
        data = part.copy()  # arguments are read-only
        without_mark(memoryview(data.data).cast("B"))
    fd = os.open(directories.on_this_node(directory) / name, os.O_RDWR | os.O_CLOEXEC)
    try:
        write_all(fd, [memoryview(data.data).cast("B")], offset)
    finally:
        os.close(fd)


def finish_copy(directory: str, name: str) -> None:
    """Set the mark for completeness of a copy on this node."""
    slot = SnapshotSlot(directories.on_this_node(directory) / name)
    slot.complete()
    slot.close()


# -- back


def fetch(source: SnapshotSource, node_id: str, path: Path) -> None:
    """Bring a snapshot to `path` on this node, `node_id`.

    Raises:
        OSError: The file system is full, or the file is gone.
        RayError: The node that has it is dead.
    """
    if source.node_id == node_id:
        os.replace(path.parent / source.file_name, path)
        return
    directory = str(path.parent)
    nbytes = api.get(run_on_node(source.node_id, size_of, directory, source.file_name))
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, nbytes)
        offsets = list(range(0, nbytes, PART_BYTES))
        pending: list[ObjectRef[Part]] = []
        for number, offset in enumerate(offsets):
            for ahead in offsets[number + len(pending) : number + _IN_FLIGHT]:
                count = min(PART_BYTES, nbytes - ahead)
                pending.append(
                    run_on_node(
                        source.node_id, read_part, directory, source.file_name, ahead, count
                    )
                )
            part: Any = api.get(pending.pop(0))
            write_all(fd, [memoryview(part.data).cast("B")], offset)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(fd)


def size_of(directory: str, name: str) -> int:
    """Return the size of a snapshot on this node."""
    slot = SnapshotSlot(directories.on_this_node(directory) / name)
    try:
        return slot.nbytes
    finally:
        slot.close()


def read_part(directory: str, name: str, offset: int, count: int) -> Part:
    """Return bytes of a snapshot on this node."""
    part: Part = np.empty(count, np.uint8)
    slot = SnapshotSlot(directories.on_this_node(directory) / name)
    try:
        slot.read_into(offset, memoryview(part.data).cast("B"))
    finally:
        slot.close()
    return part


def list_on_node(directory: str) -> list[FoundSnapshot]:
    """Return the complete snapshots on this node."""
    return directories.list_snapshots(directories.on_this_node(directory))


def remove_on_node(directory: str) -> None:
    """Delete the snapshots on this node."""
    directories.remove(directories.on_this_node(directory))
