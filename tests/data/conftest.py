"""Places for files that tests read and write: a directory of this machine, and fsspec's filesystem
in memory.
"""

import pickle
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from pyarrow import fs as pyarrow_fs

from syncline.data.columnar import block as blocks
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sinks.datasink import Datasink, TaskContext, WriteResult
from syncline.data.io.sources.datasource import Datasource


@dataclass
class Place:
    """A directory on some filesystem."""

    filesystem: Any
    path: str

    @property
    def arrow(self) -> pyarrow_fs.FileSystem:
        return filesystems.as_pyarrow(self.filesystem)

    def write(self, name: str, content: bytes) -> str:
        path = f"{self.path}/{name}"
        self.arrow.create_dir(path.rpartition("/")[0], recursive=True)
        with self.arrow.open_output_stream(path, compression=None) as stream:
            stream.write(content)
        return path


@pytest.fixture(params=["local", "fsspec"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "local":
        yield Place(pyarrow_fs.LocalFileSystem(), str(tmp_path))
        return
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    root = f"/{uuid.uuid4().hex}"
    memory.mkdir(root)
    yield Place(memory, root)
    memory.rm(root, recursive=True)


@pytest.fixture
def read_all() -> Callable[..., pa.Table]:
    """Reads a source as the executor does: every task pickled, in any order, put together in
    order.
    """

    def read(source: Datasource, parallelism: int = 3, limit: int | None = None) -> pa.Table:
        tasks = [
            pickle.loads(cloudpickle.dumps(task))
            for task in source.get_read_tasks(parallelism, limit)
        ]
        return blocks.concat([table for task in tasks for table in task()])

    return read


@pytest.fixture
def write_all() -> Callable[..., None]:
    """Writes tables as the executor does: the sink pickled to each task."""

    def write(sink: Datasink, *tables: pa.Table) -> None:
        sink.on_write_start(tables[0].schema)
        copies = [pickle.loads(cloudpickle.dumps(sink)) for _ in tables]
        returns = [
            copy.write([table], TaskContext(task_idx=index))
            for index, (copy, table) in enumerate(zip(copies, tables, strict=True))
        ]
        sink.on_write_complete(WriteResult(num_rows=0, size_bytes=0, write_returns=returns))

    return write
