"""Storage probe: check that every node with workers sees the run directory.

The controller writes a file and one worker per node reads it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from syncline.storage import filesystem as files
from syncline.train.backend import Worker
from syncline.train.storage.context import StorageContext


@dataclass(frozen=True, kw_only=True)
class StorageProbe:
    """A file in the run directory with random content."""

    storage: StorageContext
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def path(self) -> str:
        """Path of the file. Its prefix lets the next start delete it after a kill."""
        return self.storage.build_checkpoint_path_from_name(
            f"{files.TEMPORARY_PREFIX}probe-{self.nonce}"
        )

    def write(self) -> None:
        """Write the file."""
        files.write_bytes(self.storage.storage_filesystem, self.path, self.nonce.encode())

    def problem(self) -> str | None:
        """Return why this process does not see the file; None if it does."""
        try:
            found = files.read_bytes(self.storage.storage_filesystem, self.path)
        except Exception as error:  # filesystems raise errors of many types
            return f"{type(error).__name__}: {error}"
        if found is None:
            return "the file does not exist"
        return None if found == self.nonce.encode() else "another file exists"

    def remove(self) -> None:
        """Delete the file."""
        self.storage.storage_filesystem.delete_file(self.path)


def ranks_to_probe(workers: Iterable[Worker], own_node_id: str) -> list[int]:
    """Return the first rank on each node except the controller's own."""
    first: dict[str, int] = {}
    for worker in workers:
        first.setdefault(worker.node_id, worker.rank)
    first.pop(own_node_id, None)
    return list(first.values())


def probe_error(
    storage: StorageContext, problems: Mapping[int, str | None], workers: Iterable[Worker]
) -> str | None:
    """Return the error for nodes that do not see the storage; None if all do.

    Args:
        storage: Storage of the run.
        problems: Results of `StorageProbe.problem` by rank.
        workers: Workers of the group.
    """
    blind = [
        f"{worker.hostname} ({worker.node_ip}): {problem}"
        for worker in workers
        if (problem := problems.get(worker.rank))
    ]
    if not blind:
        return None
    return (
        f"`storage_path={storage.storage_fs_path!r}` ({storage.storage_filesystem.type_name} "
        "filesystem) is not the same directory on every node: these nodes cannot read what the "
        f"run wrote there: {'; '.join(blind)}. Set `RunConfig(storage_path=…)` to a directory that "
        "all nodes mount, or to a bucket such as 's3://…'."
    )
