"""`SnapshotConfig`, and the specification of snapshots that each worker gets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from syncline.suggestions import suggest_arguments
from syncline.train.snapshots.slot import SnapshotId

KEEP_S = 600.0
"""Seconds that snapshots remain after the processes of a run have died."""
COPY_EVERY_S = 5.0
"""Seconds from the start of one copy of the snapshots to other nodes to the next one."""


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class SnapshotConfig:
    """Memory snapshots of a run: `RunConfig(snapshot=SnapshotConfig())`.

    Raises:
        ValueError, TypeError: A field is invalid.
    """

    automatic: bool = True
    """Take snapshots of prepared models and their optimizers without calls of `train.snapshot`.
    False for training functions that call `train.snapshot` themselves.
    """

    every_s: float = 0.0
    """Seconds between automatic snapshots; 0 for a snapshot after every optimizer step."""

    memory_bytes: int | None = None
    """Bytes of memory for the snapshots of all ranks of a node, which keep two each. None for half
    of the memory that is available at the first snapshot.
    """

    keep_s: float = KEEP_S
    """Seconds that snapshots remain readable after the processes of the run have died."""

    copy_every_s: float | None = COPY_EVERY_S
    """Seconds from the start of one copy to another node to the next one, on runs over several
    nodes; 0 to copy without a break. None for no copies: the crash of a node then goes back to the
    last checkpoint.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.automatic, bool):
            raise TypeError(
                f"`SnapshotConfig(automatic={self.automatic!r})` is not a bool: pass False to call "
                "`train.snapshot`, and True otherwise."
            )
        for name in ("every_s", "keep_s"):
            check_seconds(f"`SnapshotConfig({name}=…)`", getattr(self, name))
        if self.copy_every_s is not None:
            check_seconds("`SnapshotConfig(copy_every_s=…)`", self.copy_every_s)
        size = self.memory_bytes
        if size is not None and (isinstance(size, bool) or not isinstance(size, int)):
            raise TypeError(
                f"`SnapshotConfig(memory_bytes={size!r})` is not a number of bytes: pass an int, "
                "such as 8_000_000_000."
            )
        if size is not None and size <= 0:
            raise ValueError(
                f"`SnapshotConfig(memory_bytes={size})` must be positive. To take no snapshots, "
                "leave `RunConfig(snapshot=…)` out."
            )


def check_seconds(subject: str, value: object) -> None:
    """Check a duration.

    Raises:
        TypeError: It is not a number.
        ValueError: It is negative or not finite.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{subject} got {value!r}, which is not a number of seconds.")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{subject} got {value!r}: pass 0 or more seconds.")


@dataclass(frozen=True, kw_only=True)
class SnapshotSource:
    """Place of a snapshot of a rank."""

    node_id: str
    """Node that has the file."""
    file_name: str
    """Name of the file in the run's directory on that node."""


@dataclass(frozen=True, kw_only=True)
class SnapshotSpec:
    """Snapshots of one attempt, the same for all of its ranks."""

    directory: str
    """Directory of the run's snapshots on this node; the parent may differ between nodes."""
    config: SnapshotConfig | None = None
    """The program's configuration; None if it has none, so that snapshots are taken by calls."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions that must be equal to resume from a snapshot, by name."""
    resume_step: int | None = None
    """Step of the snapshot that the attempt starts from; None for no snapshot."""
    resume_attempt: int = 0
    """`attempt` of that snapshot."""
    attempt: int = 0
    """Start of this attempt in nanoseconds since the epoch."""
    sources: Mapping[int, SnapshotSource] = field(default_factory=dict)
    """Snapshots that ranks have to fetch first, by rank: copies, and files of other nodes."""
    copy_nodes: Mapping[int, str] = field(default_factory=dict)
    """Node for the copies of each rank's snapshots; empty for no copies."""
    resumes_readers: bool = True
    """True if data loaders and dataset shards continue at the snapshot (`DataConfig.resume`)."""

    @property
    def resumed(self) -> SnapshotId | None:
        """The snapshot that the attempt starts from; None for no snapshot."""
        step = self.resume_step
        return None if step is None else SnapshotId(self.resume_attempt, step)

    @property
    def keep_s(self) -> float:
        """Seconds that snapshots remain after the processes of the run have died."""
        return KEEP_S if self.config is None else self.config.keep_s

    @property
    def copy_every_s(self) -> float | None:
        """Seconds from the start of one copy to the next one; None for no copies."""
        return COPY_EVERY_S if self.config is None else self.config.copy_every_s

    @property
    def is_automatic(self) -> bool:
        """True if prepared models and optimizers are captured without calls."""
        return self.config is not None and self.config.automatic
