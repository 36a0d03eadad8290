"""What the doctor can find out, as plain values; what they mean is `judge`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Space:
    """Room on a filesystem."""

    path: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, kw_only=True)
class TorchFacts:
    """What the installed torch can do."""

    version: str
    cuda: str | None
    """The CUDA version it was built for; None for a build without."""
    cuda_available: bool
    """Whether it finds a GPU that it can use."""
    gloo: bool
    """Whether Gloo is built in."""
    nccl: str | None
    """The version of NCCL that is built in."""


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What one node says of itself."""

    hostname: str
    python: str
    versions: Mapping[str, str | None]
    """Versions of syncline, ray and torch; None for what is not installed."""
    torch: TorchFacts | None
    """None where torch is not installed, or cannot be imported."""
    torch_error: str | None
    """Why it cannot be imported."""
    gpus: Sequence[str]
    """Models of the GPUs."""
    driver: str | None
    """Version of their driver."""
    shared_memory: Space | None
    """None where there is no /dev/shm."""
    temporary: Space
    """Where sessions lie."""
    open_files: int
    """How many files a process may have open."""


@dataclass(frozen=True, kw_only=True)
class Skew:
    """How far a clock is ahead of the one of the machine that asks."""

    seconds: float
    uncertain_s: float
    """By how much that may be wrong: half of the time that the question took."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """One node's attempt to reach another."""

    source: str
    target: str
    error: str | None
    """Why it failed; None if it did not."""


@dataclass(frozen=True, kw_only=True)
class GlooFacts:
    """An all-reduce over all nodes."""

    seconds: float
    errors: Mapping[str, str]
    """By node; empty if it worked."""


@dataclass(frozen=True, kw_only=True)
class StorageFacts:
    """A file written by one node and read by the others."""

    path: str
    writer: str
    write_error: str | None
    unseen: Mapping[str, str]
    """Nodes that cannot read it, and why."""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """All facts; nodes go by the names that they have in messages."""

    cluster: str | None
    """The cluster's address; None for this machine alone."""
    nodes: Mapping[str, NodeFacts]
    silent: Mapping[str, str] = field(default_factory=dict)
    """Nodes that could not be asked, and why."""
    dead: Sequence[str] = ()
    """Nodes that the cluster has lost."""
    driver: NodeFacts | None = None
    """This program, where it is not on the only node."""
    skews: Mapping[str, Skew] = field(default_factory=dict)
    links: Sequence[Link] = ()
    gloo: GlooFacts | None = None
    """None where a node has no torch."""
    storage: StorageFacts | None = None
