"""`CheckpointSaver`: checkpoints of `train.save`, written by another process from shared memory.

`save` copies the state into a file in shared memory, like a snapshot. When the checkpoint is
reported, a task of the engine serializes it with `torch.save` and brings it to the storage of the
run, so neither happens in the process that trains. `BUFFERS` states may be in shared memory at a
time; `save` waits for one of them to be written if there are more. The memory of a checkpoint that
is never reported is released with the object. States that do not fit into memory are serialized by
`save` itself, and so are those for which no memory becomes free, because the program keeps
`BUFFERS` checkpoints that it has not reported.
"""

from __future__ import annotations

import os
import queue
import shutil
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from syncline.core import api
from syncline.core.engine import current_engine
from syncline.core.placement import NodeAffinitySchedulingStrategy
from syncline.core.remote import remote
from syncline.optional import deferred
from syncline.storage.filesystem import TEMPORARY_PREFIX, list_directory
from syncline.train.checkpoint import Checkpoint
from syncline.train.snapshots.capture import SavedState
from syncline.train.snapshots.direct_save import save_now
from syncline.train.snapshots.rank_snapshots import RankSnapshots
from syncline.train.snapshots.slot import SnapshotSlot
from syncline.train.workers.messages import CheckpointPart
from syncline.train.workers.spec import WorkerSpec
from syncline.train.workers.uploads import CheckpointUpload, SavedCheckpoint

if TYPE_CHECKING:
    import psutil
else:
    psutil = deferred("psutil")

BUFFERS = 2
"""States of a rank in shared memory: one is written while the next one is copied."""
ATTEMPTS = 3
"""Processes that may try to write a checkpoint, if they are killed."""
OWNER_POLL_S = 0.05
"""Interval at which a process that writes a checkpoint looks whether the worker is alive."""


class CheckpointSaver:
    """Saves checkpoints of one rank. `save` is used by the thread of the training function.

    Args:
        spec: The worker.
        snapshots: Snapshots of the rank, for their directory and limits.
    """

    def __init__(self, spec: WorkerSpec, snapshots: RankSnapshots) -> None:
        self._spec = spec
        self._snapshots = snapshots
        self._free: queue.SimpleQueue[SnapshotSlot] = queue.SimpleQueue()
        self._unreported: weakref.WeakSet[Checkpoint] = weakref.WeakSet()
        self._made = 0
        self._count = 0

    def save(self, state: object, file_name: str) -> Checkpoint:
        """Copy a state; return the checkpoint to report.

        Raises:
            TypeError: Part of the state cannot be saved.
        """
        self._count += 1
        slot = self._slot()
        if slot is None:
            return save_now(state, file_name)
        is_copied = False
        try:
            is_copied = self._snapshots.copy_to(slot, state)
        finally:
            if not is_copied:
                self._free.put(slot)
        if not is_copied:
            return save_now(state, file_name)
        storage, token = self._spec.storage, f"{self._spec.token}-{self._spec.worker.rank:05d}"
        name = f"{TEMPORARY_PREFIX}save-{token}-{self._count}"
        # Leftovers of killed processes are removed there.
        parent = storage.experiment_fs_path if storage.local else current_engine().session_directory
        path = os.path.join(parent, name)

        def write(upload: CheckpointUpload) -> CheckpointPart:
            try:
                return self._write(slot, upload, os.path.join(path, file_name))
            finally:
                release()

        checkpoint = SavedCheckpoint(path, write)
        release = weakref.finalize(checkpoint, self._free.put, slot)  # acts once
        release.atexit = False
        self._unreported.add(checkpoint)
        return checkpoint

    def reported(self, checkpoint: Checkpoint) -> None:
        """Record that a checkpoint is reported, after which its buffer is used again.

        Raises:
            ValueError: It was reported before.
        """
        if checkpoint not in self._unreported:
            raise ValueError(
                "report(checkpoint=…) got a result of `train.save` that was reported before, so "
                "its memory may have another state by now. Call `train.save` for each report."
            )
        self._unreported.discard(checkpoint)

    def _slot(self) -> SnapshotSlot | None:
        """Return a free buffer; wait for one that is being written. None if there will be none,
        because all of them have states that the program has not reported.
        """
        if self._made < BUFFERS and self._free.empty():
            self._made += 1
            name = f"rank-{self._spec.worker.rank:05d}.save{self._made}"
            return SnapshotSlot(Path(self._snapshots.spec.directory, name))
        return None if len(self._unreported) == BUFFERS else self._free.get()

    def _write(self, slot: SnapshotSlot, upload: CheckpointUpload, path: str) -> CheckpointPart:
        # Dataset shards cannot be used by another process, and nothing needs them there.
        plain = replace(
            upload,
            spec=replace(self._spec, shares={}, snapshots=None, data_context=None),
            checkpoint=Checkpoint(os.path.dirname(path), upload.checkpoint.filesystem),
            call=upload.call._replace(checkpoint=None),
        )
        here = NodeAffinitySchedulingStrategy(self._spec.worker.node_id, soft=False)
        task = remote(write_checkpoint).options(
            num_cpus=0, max_retries=ATTEMPTS - 1, scheduling_strategy=here
        )
        part: CheckpointPart = api.get(task.remote(str(slot.path), path, plain, os.getpid()))
        return part


def write_checkpoint(
    slot_path: str, path: str, upload: CheckpointUpload, worker_pid: int
) -> CheckpointPart:
    """Write a state in shared memory to `path`, and bring its directory to the storage. Runs in a
    separate process, as long as the worker lives.
    """
    from syncline.train.snapshots import torch_files  # loads torch

    directory = os.path.dirname(path)
    with ending_with(worker_pid):
        shutil.rmtree(directory, ignore_errors=True)  # of a process that was killed
        os.makedirs(directory)
        try:
            torch_files.write(SavedState(SnapshotSlot(Path(slot_path))).view(), path)
            listing = list_directory(upload.checkpoint.filesystem, directory)
            return replace(upload, files=listing).run(owns_source=True)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def ending_with(pid: int) -> Iterator[None]:
    """Kill this process as soon as another process of this node is dead.

    The next attempt deletes unfinished checkpoints. If the process of a dead worker continued, it
    would bring parts of them back.

    Raises:
        RuntimeError: The other process is dead already.
    """
    if not psutil.pid_exists(pid):
        raise RuntimeError(f"Worker process {pid} died before its checkpoint was written.")
    done = threading.Event()

    def watch() -> None:
        while not done.wait(OWNER_POLL_S):
            if not psutil.pid_exists(pid):
                os._exit(1)

    threading.Thread(target=watch, name="syncline-save-watch", daemon=True).start()
    try:
        yield
    finally:
        done.set()
