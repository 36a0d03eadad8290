"""Blocks into files that outlive the program, on their way to the next operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs as pyarrow_fs

from syncline import faults
from syncline.data.execute.chain import Step, TaskState
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources import arrow_files


@dataclass(frozen=True, kw_only=True, eq=False)
class KeepStep(Step):
    """Writes the one block of each task, under the task's number; it goes on as it is."""

    name: str
    filesystem: pyarrow_fs.FileSystem
    directory: str
    data: str
    """Name of the writer's own directory in it."""
    patterns: tuple[str, ...]
    """Errors that are tried again."""

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        path = filesystems.join(self.directory, arrow_files.file_name(self.data, task.task))
        for table in blocks:
            self._write(path, table)
            faults.reach("data.cache.block")
            yield table

    def _write(self, path: str, table: pa.Table) -> None:
        write = arrow_files.write_block
        filesystems.call_with_retry(
            lambda: write(self.filesystem, path, table), f"keeping {path}", self.patterns
        )
