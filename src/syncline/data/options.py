"""What readers and writers take besides their own arguments: how many tasks, what each holds, which
files.

Covered: the keywords (`ReadOptions`, `FileOptions`, `WriteOptions`, …) with their defaults, and
what they become in the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import pyarrow.fs as pyarrow_fs

from syncline.core.options import TaskOptions, updated
from syncline.data.io.sinks.datasink import SaveMode
from syncline.data.io.sinks.file_datasink import FilenameProvider
from syncline.data.io.sources.file_listing import FileShuffleConfig
from syncline.data.io.sources.partitioning import Partitioning, PathPartitionFilter
from syncline.data.methods.functions import WORKER, WorkerOptions
from syncline.data.plan.compute import Resources


class ReadOptions(WorkerOptions, total=False):
    """What every reader takes."""

    ray_remote_args: dict[str, Any] | None
    """Any of those that workers have, or further options of `remote`; those that are given by name
    count more.
    """
    override_num_blocks: int | None
    """Number of read tasks; None for as many as the bytes and the CPUs ask for."""
    parallelism: int
    """Older name of `override_num_blocks`; -1 is None."""
    concurrency: int | None
    """The most read tasks at once; None for as many as there is room for."""


class FileOptions(ReadOptions, total=False):
    """What readers of files take."""

    filesystem: pyarrow_fs.FileSystem | Any | None
    """A pyarrow or fsspec filesystem; found from the first path if None."""
    arrow_open_stream_args: dict[str, Any] | None
    """For `filesystem.open_input_stream`, for instance `{"compression": "gzip"}`."""
    partition_filter: PathPartitionFilter | None
    """Keeps the files that it accepts."""
    partitioning: Partitioning | None
    """Columns that stand in the paths."""
    include_paths: bool
    """Add the column `path`."""
    ignore_missing_paths: bool
    """Leave out paths that do not exist."""
    shuffle: Literal["files"] | FileShuffleConfig | None
    """Read the files in another order, in each epoch a new one."""
    file_extensions: list[str] | None
    """Read only files with these endings; None for all."""


class WriteOptions(TypedDict, total=False):
    """What every writer takes."""

    ray_remote_args: dict[str, Any] | None
    """Options of `remote` for the write tasks."""
    concurrency: int | None
    """The most write tasks at once; None for as many as there is room for."""


class FileWriteOptions(WriteOptions, total=False):
    """What writers of files take."""

    filesystem: pyarrow_fs.FileSystem | Any | None
    """A pyarrow or fsspec filesystem; found from the path if None."""
    try_create_dir: bool
    """Make the directory if it does not exist."""
    arrow_open_stream_args: dict[str, Any] | None
    """For `filesystem.open_output_stream`, for instance `{"compression": "gzip"}`."""
    filename_provider: FilenameProvider | None
    """Names the files."""
    mode: SaveMode | str
    """What to do where there is something already."""


class BlockFileWriteOptions(FileWriteOptions, total=False):
    """What writers take that put several rows into a file."""

    min_rows_per_file: int | None
    """Rows of every file but the last at least; None for as many as there are in a block."""
    num_rows_per_file: int | None
    """Older name of `min_rows_per_file`."""


READ: ReadOptions = {
    **WORKER,
    "ray_remote_args": None,
    "override_num_blocks": None,
    "parallelism": -1,
    "concurrency": None,
}
"""Keywords of every reader, with their defaults."""
FILES: FileOptions = {
    **READ,
    "filesystem": None,
    "arrow_open_stream_args": None,
    "partition_filter": None,
    "partitioning": None,
    "include_paths": False,
    "ignore_missing_paths": False,
    "shuffle": None,
    "file_extensions": None,
}
"""Keywords of every reader of files."""
WRITE: WriteOptions = {"ray_remote_args": None, "concurrency": None}
"""Keywords of every writer."""
FILES_WRITE: FileWriteOptions = {
    **WRITE,
    "filesystem": None,
    "try_create_dir": True,
    "arrow_open_stream_args": None,
    "filename_provider": None,
    "mode": SaveMode.APPEND,
}
"""Keywords of every writer of files."""
BLOCK_FILES_WRITE: BlockFileWriteOptions = {
    **FILES_WRITE,
    "min_rows_per_file": None,
    "num_rows_per_file": None,
}
"""Keywords of every writer that puts several rows into a file."""

_NAMED = ("num_cpus", "num_gpus", "memory")


def resources_of(options: Mapping[str, Any]) -> Resources:
    """What the tasks hold: `ray_remote_args`, and over them what is given by name. TypeError and
    ValueError where `remote` raises them.
    """
    given = dict(options.get("ray_remote_args") or {})
    given |= {name: options[name] for name in WORKER if options.get(name) is not None}
    updated(TaskOptions(), given)
    return Resources(**{name: given.pop(name) for name in _NAMED if name in given}, options=given)


def num_blocks_of(override_num_blocks: int | None, parallelism: int | None = -1) -> int | None:
    """The number of blocks that a program asks for, by either name; None if it does not. ValueError
    below 1.
    """
    if override_num_blocks is not None:
        return at_least_one("override_num_blocks", override_num_blocks)
    return None if parallelism in (-1, None) else at_least_one("parallelism", parallelism)


def at_least_one(name: str, value: Any) -> int:
    """The value, if it is a number of at least 1; TypeError and ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"{name}={value!r} is of type {type(value).__name__}: give an int of at least 1, or leave it out"
        )
    if value < 1:
        raise ValueError(f"{name}={value} is too small: give at least 1, or leave it out")
    return value


def file_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """What a file source takes of the options, under its names."""
    return _between(options, FileOptions, ReadOptions)


def sink_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """What a file sink takes of the options, under its names. ValueError if both names of the rows
    per file are given.
    """
    arguments = _between(options, BlockFileWriteOptions, WriteOptions)
    older = arguments.pop("num_rows_per_file", None)
    if older is not None:
        if arguments.get("min_rows_per_file") is not None:
            raise ValueError(
                "num_rows_per_file is the older name of min_rows_per_file: give only min_rows_per_file"
            )
        arguments["min_rows_per_file"] = older
    return arguments


def _between(options: Mapping[str, Any], of_files: type, of_all: type) -> dict[str, Any]:
    """The options that are for files, under the names that sources and sinks have for them."""
    arguments = {
        name: options[name]
        for name in of_files.__annotations__
        if name in options and name not in of_all.__annotations__
    }
    if "arrow_open_stream_args" in arguments:
        arguments["open_stream_args"] = arguments.pop("arrow_open_stream_args")
    return arguments


def rest_of(options: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are none of the shared ones: they belong to another library."""
    return {name: value for name, value in options.items() if name not in shared}
