"""Whether every node that hosts workers sees the run directory: a file that the controller writes
and one worker per node reads.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from syncline.train import filesystem as directories
from syncline.train.backend import Worker
from syncline.train.storage import StorageContext


@dataclass(frozen=True, kw_only=True)
class StorageProbe:
    """A file in the run directory with a content that nobody else can know."""

    storage: StorageContext
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def path(self) -> str:
        """Where it lies; what a killed controller leaves of it goes with everything else that is
        unfinished.
        """
        return self.storage.build_checkpoint_path_from_name(
            f"{directories.TEMPORARY_PREFIX}probe-{self.nonce}"
        )

    def plant(self) -> None:
        """Write it. OSError where that is impossible."""
        directories.write_bytes(self.storage.storage_filesystem, self.path, self.nonce.encode())

    def problem(self) -> str | None:
        """Why this process does not see it; None if it does."""
        try:
            found = directories.read_bytes(self.storage.storage_filesystem, self.path)
        except (
            Exception
        ) as error:  # filesystems of all kinds: whatever it is, the node cannot read there
            return f"{type(error).__name__}: {error}"
        if found is None:
            return "the file is not there"
        return None if found == self.nonce.encode() else "another file is there"

    def remove(self) -> None:
        """Delete it."""
        self.storage.storage_filesystem.delete_file(self.path)


def ranks_to_ask(workers: Iterable[Worker], own_node_id: str) -> list[int]:
    """The first rank on each node but the controller's own, which sees what it has written."""
    first: dict[str, int] = {}
    for worker in workers:
        first.setdefault(worker.node_id, worker.rank)
    first.pop(own_node_id, None)
    return list(first.values())


def refusal(
    storage: StorageContext, problems: Mapping[int, str | None], workers: Iterable[Worker]
) -> str | None:
    """What to tell where nodes do not see the storage (`problems` by rank); None if all do."""
    blind = [
        f"{worker.hostname} ({worker.node_ip}): {problem}"
        for worker in workers
        if (problem := problems.get(worker.rank))
    ]
    if not blind:
        return None
    return (
        f"`storage_path={storage.storage_fs_path!r}` ({storage.storage_filesystem.type_name} filesystem) is not the same directory on "
        f"every node: what the run wrote there cannot be read on {'; '.join(blind)}. Checkpoints of workers there would be lost: set "
        "`RunConfig(storage_path=…)` to a directory that all nodes mount, or to a bucket such as 's3://…'."
    )
