"""`RankSnapshots`: the memory snapshots of one rank in one attempt.

It writes to two slots in turn, always over the older snapshot. With copies on another node there
are two more, for snapshots that a restart from the copies needs. If the snapshots do not fit into
memory, it reports that once and takes no more; training continues with checkpoints.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from syncline.core import cgroups
from syncline.train.snapshots import directory as directories
from syncline.train.snapshots.capture import Capture, SavedState, StatefulObject, capture
from syncline.train.snapshots.config import SnapshotSource, SnapshotSpec
from syncline.train.snapshots.copier import SnapshotCopier
from syncline.train.snapshots.slot import SnapshotHeader, SnapshotId, SnapshotSlot, snapshot_nbytes

logger = logging.getLogger("syncline")

_MAX_GROWTH = 16
"""Largest factor by which the number of steps between two snapshots grows each time."""


@dataclass(frozen=True, kw_only=True)
class SnapshotStatistics:
    """Statistics of a rank's snapshots in this attempt."""

    taken: int
    """Snapshots taken."""
    nbytes: int
    """Size of the last one."""
    seconds: float
    """Time that the training function spent in them."""


def _no_fetch(source: SnapshotSource, path: Path) -> None:
    raise AssertionError("this rank has its snapshot")


class RankSnapshots:
    """Snapshots of one rank. Used by the thread of the training function.

    Args:
        spec: Snapshots of the attempt.
        rank: This rank.
        world_size: Number of ranks.
        local_world_size: Number of ranks on this node, which share its memory.
        agree: Waits until every rank calls it; returns the value of rank 0.
        copier: Copies snapshots to another node; None for no copies.
        on_refused: Called with the last snapshot that must not be used any more, on any node.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self,
        spec: SnapshotSpec,
        *,
        rank: int,
        world_size: int,
        local_world_size: int,
        agree: Callable[[int], int],
        copier: SnapshotCopier | None = None,
        on_refused: Callable[[SnapshotId], None] = lambda last: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spec = spec
        self.is_disabled = False
        """True if the snapshots do not fit into memory."""
        self.is_fetched = spec.resume_step is None
        """True unless the attempt starts from a snapshot that the program has not loaded yet."""
        self.registered: dict[str, object] = {}
        """Values given to `train.register_state`, by name."""
        self._rank = rank
        self._world_size = world_size
        self._local_world_size = local_world_size
        self._agree = agree
        self._copier = copier
        self._on_refused = on_refused
        self._clock = clock
        self._step = spec.resume_step or 0
        count = directories.SLOTS + (0 if copier is None else directories.COPIED_SLOTS)
        self._slots = directories.slots_of(self._directory, rank, count)
        self._saved: SavedState | None = None
        self._automatic: Mapping[str, Any] | None = None
        self._unregistered: dict[str, Any] = {}  # saved values that the program has not registered
        self._is_open = False
        self._next_step = 0  # of the next snapshot with `every_s`
        self._interval = 1
        self._last_taken: tuple[int, float] | None = None
        self._writer: threading.Thread | None = None
        self._error: BaseException | None = None
        self._taken, self._nbytes, self._seconds = 0, 0, 0.0

    @property
    def _directory(self) -> Path:
        return Path(self.spec.directory)

    @property
    def step(self) -> int:
        """Number of the last step, over all attempts of the run."""
        return self._step

    def statistics(self) -> SnapshotStatistics:
        """Return the statistics of this attempt."""
        return SnapshotStatistics(taken=self._taken, nbytes=self._nbytes, seconds=self._seconds)

    # -- start of an attempt

    def begin(self, fetch: Callable[[SnapshotSource, Path], None] = _no_fetch) -> None:
        """Forget all snapshots but the one that the attempt starts from. All ranks do this before
        one of them takes a new snapshot.

        Args:
            fetch: Brings a snapshot to a path, from a copy or another node.

        Raises:
            OSError: The process of an earlier attempt does not end.
        """
        source = self.spec.sources.get(self._rank)
        if source is None and not self._directory.exists():
            return
        directories.join(self._directory)
        directories.take_rank(self._directory, self._rank)
        if source is not None:
            fetch(source, self._slots[0].path)
        every = directories.slots_of(self._directory, self._rank, directories.MOST_SLOTS)
        for number, slot in enumerate(every):
            header = slot.header()
            is_resumed = header is not None and header.id == self.spec.resumed
            if number >= len(self._slots):  # of an attempt with copies
                slot.close()
                if is_resumed:
                    os.replace(slot.path, self._slots[0].path)
                else:
                    slot.path.unlink(missing_ok=True)
            elif not is_resumed:
                slot.invalidate()
            slot.close()
        for path in self._directory.glob(f"rank-{self._rank:05d}.save*"):
            path.unlink()  # checkpoints that an earlier attempt has not written

    @property
    def resumed_readers(self) -> bytes | None:
        """Result of `Readers.capture` at the snapshot that the attempt starts from, if any."""
        saved = self._resumed()
        return None if saved is None else saved.readers

    def load(self) -> Any:
        """Return the state that the attempt starts from; None without a snapshot, or if it was
        loaded before.
        """
        saved = None if self.is_fetched else self._resumed()
        self.is_fetched = True
        return None if saved is None else saved.load()

    def register(self, name: str, value: object) -> None:
        """Add a value to automatic snapshots, and restore it if the attempt starts from one.

        Raises:
            ValueError: There is one of this name.
        """
        if name in self.registered:
            raise ValueError(
                f"`register_state({name}=…)` was called before with this name: use another one."
            )
        self.registered[name] = value
        self.automatic_state()
        if name not in self._unregistered:
            return
        saved = self._unregistered.pop(name)
        if isinstance(value, dict):
            value.clear()
            value.update(saved)
        else:
            cast(StatefulObject, value).load_state_dict(saved)

    def automatic_state(self) -> Mapping[str, Any] | None:
        """Return the state to restore automatically; None without one, or after a snapshot."""
        if not self.spec.is_automatic:
            return None
        if not self.is_fetched:
            self._automatic, self._unregistered = self.load()
        return self._automatic

    def take_automatic(self, state: object, readers: bytes, next_report: int) -> None:
        """Take a snapshot of the state of models and optimizers, and of the registered values."""
        registered = self._unregistered | self.registered
        self.take((state, registered), readers, next_report)
        self._automatic = None  # restored, or part of `state`

    def refuse(self) -> None:
        """Delete this rank's snapshots on this node, from which the program cannot continue."""
        self._on_refused(SnapshotId(attempt=self.spec.attempt, step=self._step))
        if self._copier is not None:
            self._copier.stop(limit_s=0.0)
        for slot in self._slots:
            slot.remove()

    def _resumed(self) -> SavedState | None:
        if self._saved is None and self.spec.resume_step is not None:
            slot = self._resumed_slot()
            if slot is None:
                raise RuntimeError(
                    f"The memory snapshot of step {self.spec.resume_step} of rank {self._rank} is "
                    f"gone from {self._directory}, although this attempt starts from it. Run "
                    "again with the same name to continue from the last checkpoint."
                )
            self._saved = SavedState(slot)
        return self._saved

    def _resumed_slot(self) -> SnapshotSlot | None:
        for slot in self._slots:
            header = slot.header()
            if header is not None and header.id == self.spec.resumed:
                return slot
        return None

    # -- snapshots

    def advance(self, every_s: float) -> bool:
        """Count a step; return True if it is time for a snapshot, on all ranks or on none.

        Steps take different times on different ranks, so rank 0 decides at each snapshot after how
        many steps the next one follows.
        """
        self._step += 1
        if self.is_disabled and self._world_size == 1:
            return False
        if not every_s:
            return not self.is_disabled
        if self._step < self._next_step:
            return False
        now, steps = self._clock(), 1
        if self._last_taken is not None:
            step, before = self._last_taken
            passed = max(now - before, 1e-9)
            wanted = math.ceil(every_s * (self._step - step) / passed)
            steps = max(1, min(wanted, self._interval * _MAX_GROWTH))
        if self._world_size > 1:
            steps = self._agree(steps)
        self._interval, self._last_taken = steps, (self._step, now)
        self._next_step = self._step + steps
        return not self.is_disabled

    def advance_automatic(self) -> bool:
        """Count a step; return True if it is time for an automatic snapshot."""
        assert self.spec.config is not None
        return self.advance(self.spec.config.every_s)

    def take(self, state: object, readers: bytes, next_report: int) -> None:
        """Copy the state of the program into shared memory.

        Raises:
            TypeError: Part of the state cannot be captured; the message names it.
            RuntimeError: The attempt starts from a snapshot that the program has not loaded.
        """
        began = time.perf_counter()
        self._check_fetched()
        self._finish_write()
        captured = capture(state, readers, has_shards=self.spec.is_automatic)
        header = self._header(next_report)
        nbytes = snapshot_nbytes(captured.sizes, len(captured.description))
        if nbytes > self._nbytes and not self._fits(nbytes):
            return
        self._nbytes = nbytes
        self._open()
        if captured.wait is None:
            self._write(header, captured)
        else:
            self._writer = threading.Thread(
                target=self._write_later, args=(header, captured), name="syncline-snapshot"
            )
            self._writer.start()
        self._taken += 1
        self._seconds += time.perf_counter() - began

    def copy_to(self, slot: SnapshotSlot, state: object) -> bool:
        """Copy a state into a further file; return False if it does not fit into memory.

        Raises:
            TypeError: Part of the state cannot be captured; the message names it.
        """
        self._finish_write()
        captured = capture(state, b"")
        nbytes = snapshot_nbytes(captured.sizes, len(captured.description))
        limit, _ = self._limit()
        if not slot.path.exists() and nbytes > limit:
            return False
        self._open()
        if captured.wait is not None:
            captured.wait()
        try:
            slot.write(self._header(0), captured.regions, captured.description)
        except OSError:
            slot.remove()
            return False
        return True

    def copy(self, from_step: int, kept_step: int | None) -> None:
        """Copy the first snapshot at or after a step to another node. Thread-safe.

        Args:
            from_step: The step.
            kept_step: The last step that all ranks have copied; None for none.
        """
        if self._copier is not None:
            self._copier.request(from_step, kept_step)

    def finish(self) -> None:
        """Wait for the last snapshot, at the end of the training function."""
        self._finish_write()
        if self._copier is not None:
            self._copier.stop()
        if self.spec.is_automatic and not self._step and self._rank == 0:
            logger.warning(
                "`RunConfig(snapshot=…)` is set, but no memory snapshot was taken, because no "
                "optimizer made a step with parameters of a model from `prepare_model`. Prepare "
                "the model (for Lightning or Transformers, the Trainer with `prepare_trainer`), or "
                "call `train.snapshot()` with `SnapshotConfig(automatic=False)`."
            )

    def _header(self, next_report: int) -> SnapshotHeader:
        return SnapshotHeader(
            rank=self._rank,
            world_size=self._world_size,
            step=self._step,
            attempt=self.spec.attempt,
            next_report=next_report,
            taken_at=time.time(),
            versions=self.spec.versions,
        )

    def _check_fetched(self) -> None:
        if self.is_fetched:
            return
        raise RuntimeError(
            f"This attempt starts from the memory snapshot of step {self.spec.resume_step}, but "
            "the training function has not loaded it: call `train.get_snapshot()` at its start, "
            "and continue from the state that it returns."
        )

    def _open(self) -> None:
        if self._is_open:
            return
        directories.join(self._directory)
        directories.take_rank(self._directory, self._rank)
        directories.start_reaper(self._directory, self.spec.keep_s)
        self._is_open = True

    def _write(self, header: SnapshotHeader, captured: Capture) -> None:
        slot = self._oldest()
        try:
            slot.write(header, captured.regions, captured.description)
            if self._copier is not None:
                self._copier.taken(slot, header.step)
        except OSError as error:
            self._disable(
                f"The snapshot of rank {self._rank} ({_size(self._nbytes)}) does not fit into "
                f"{self._directory.parent}, which has {_size(_free(self._directory))} left "
                f"({error.strerror})"
            )

    def _write_later(self, header: SnapshotHeader, captured: Capture) -> None:
        try:
            assert captured.wait is not None
            captured.wait()
            self._write(header, captured)
        except BaseException as error:
            self._error = error

    def _finish_write(self) -> None:
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _oldest(self) -> SnapshotSlot:
        """Return the slot to overwrite."""
        headers = [(slot.header(), slot) for slot in self._slots]
        steps = [(-1 if header is None else header.step, slot) for header, slot in headers]
        if self._copier is None:
            return min(steps, key=lambda pair: pair[0])[1]
        kept = {max(step for step, _ in steps), *self._copier.pinned}
        free = [(not slot.exists, step, slot) for step, slot in steps if step not in kept - {-1}]
        # A slot without a file takes further memory, so it is the last choice.
        return min(free, key=lambda triple: triple[:2])[2]

    # -- memory

    def _fits(self, nbytes: int) -> bool:
        """Return True if two snapshots of this size fit into memory; otherwise take no more."""
        needed, limit, reason = nbytes * directories.SLOTS, *self._limit()
        if needed <= limit:
            if not self._nbytes:
                self._check_copies(nbytes, limit, reason)
            return True
        self._disable(
            f"The snapshots of rank {self._rank} need {_size(needed)} (two of {_size(nbytes)}), "
            f"but have {_size(limit)}: {reason}"
        )
        return False

    def _check_copies(self, nbytes: int, limit: int, reason: str) -> None:
        """Make no copies if they do not fit into memory, with those of another rank."""
        needed = nbytes * (directories.MOST_SLOTS + directories.COPIES)
        if self._copier is None or needed <= limit:
            return
        logger.warning(
            "The memory snapshots are not copied to other nodes: with copies, rank %d and its "
            "copies for another rank need %s, but have %s: %s. After the crash of a node, training "
            "continues from the last checkpoint.",
            self._rank,
            _size(needed),
            _size(limit),
            reason,
        )
        self._copier.stop()

    def _limit(self) -> tuple[int, str]:
        """Return the bytes that this rank may use, and the reason."""
        ranks, config = self._local_world_size, self.spec.config
        shared = f"shared by the {ranks} ranks of this node" if ranks > 1 else "for one rank"
        own = sum(slot.path.stat().st_size for slot in self._slots if slot.path.exists())
        if config is not None and config.memory_bytes is not None:
            limit = config.memory_bytes // ranks
            reason = f"`SnapshotConfig(memory_bytes={config.memory_bytes})`, {shared}"
        else:
            available = _available_bytes()
            limit = (available // 2) // ranks + own
            reason = f"half of the {_size(available)} that are available, {shared}"
        free = _free(self._directory) // ranks + own
        if free < limit:
            limit = free
            reason = f"{_size(free)} are free in {self._directory.parent.parent}, {shared}"
        return limit, reason

    def _disable(self, problem: str) -> None:
        self.is_disabled = True
        if self._copier is not None:
            self._copier.stop(limit_s=0.0)
        for slot in self._slots:
            slot.remove()
        logger.error(
            "%s. Training continues without memory snapshots, and restarts continue from the last "
            "checkpoint. To take snapshots, give the node more memory (in a container also more "
            "shared memory: `--shm-size`), or raise `SnapshotConfig(memory_bytes=…)`.",
            problem,
        )


def _available_bytes() -> int:
    """Return the bytes of memory that this node, or this container, has left."""
    available = cgroups.MemoryFiles.of().available_bytes()
    return cgroups.memory_bytes() if available is None else available


def _free(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def _size(nbytes: int) -> str:
    if nbytes >= 1e9:
        return f"{nbytes / 1e9:.2f} GB"
    return f"{nbytes / 1e6:.1f} MB"
