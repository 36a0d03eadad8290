"""Findings of the doctor as plain values; `checks` interprets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Space:
    """Space on a filesystem."""

    path: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, kw_only=True)
class TorchFacts:
    """Capabilities of the installed torch."""

    cuda: str | None
    """CUDA version of the build; None for a CPU build."""
    cuda_available: bool
    """True if torch finds a usable GPU."""
    nccl: str | None
    """NCCL version of the build."""


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """Findings on one node."""

    python: str
    versions: Mapping[str, str | None]
    """Versions of syncline, ray and torch; None if not installed."""
    torch: TorchFacts | None
    """None if torch is not installed or cannot be imported."""
    torch_error: str | None
    """Reason why torch cannot be imported."""
    gpus: Sequence[str]
    """Models of the GPUs."""
    driver: str | None
    """Version of the GPU driver."""
    shared_memory: Space | None
    """None without /dev/shm."""
    temporary: Space
    """Space in the directory of sessions."""
    open_files: int
    """Number of files that a process may open."""


@dataclass(frozen=True, kw_only=True)
class Skew:
    """Offset of a node's clock from this machine's; positive if it is ahead."""

    seconds: float
    uncertain_s: float
    """Half of the round-trip time."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """Result of one node's connection to another."""

    source: str
    target: str
    error: str | None
    """Reason of the failure; None if it succeeded."""


@dataclass(frozen=True, kw_only=True)
class GlooFacts:
    """Result of an all-reduce over all nodes."""

    seconds: float
    errors: Mapping[str, str]
    """Errors by node; empty if it succeeded."""


@dataclass(frozen=True, kw_only=True)
class StorageFacts:
    """Result of writing a file on one node and reading it on the others."""

    path: str
    writer: str
    write_error: str | None
    unseen: Mapping[str, str]
    """Nodes that cannot read the file, with the reason."""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """All findings, by the names that nodes have in messages."""

    cluster: str | None
    """Address of the cluster; None for this machine only."""
    nodes: Mapping[str, NodeFacts]
    silent: Mapping[str, str] = field(default_factory=dict)
    """Nodes that did not answer, with the reason."""
    dead: Sequence[str] = ()
    """Nodes that the cluster has lost."""
    driver: NodeFacts | None = None
    """This program, unless it runs on the only node."""
    skews: Mapping[str, Skew] = field(default_factory=dict)
    links: Sequence[Link] = ()
    gloo: GlooFacts | None = None
    """None if a node has no torch."""
    storage: StorageFacts | None = None
