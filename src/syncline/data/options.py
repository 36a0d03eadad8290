"""Keyword arguments that many functions share: `keywords` shows them in every signature and checks
their names; TypedDicts declare those of readers and writers with their defaults.

    @keywords(FILES)
    def read_text(paths, *, encoding="utf-8", **options: Unpack[FileOptions]): ...

Options of functions that run user code are in `plan.function_options`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar

from syncline.core.options import OPTION_NAMES
from syncline.core.tracebacks import shorten
from syncline.data.io.sinks.datasink import SaveMode
from syncline.data.io.sinks.file_datasink import FilenameProvider
from syncline.data.io.sources.file_listing import FileShuffleConfig
from syncline.data.io.sources.partitioning import Partitioning, PathPartitionFilter
from syncline.data.plan import checks
from syncline.data.plan.compute import Resources
from syncline.data.plan.function_options import (
    WORKER,
    Arguments,
    Options,
    RemoteArgs,
    WorkerOptions,
    checked_resources,
)
from syncline.suggestions import unknown_argument

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
P = ParamSpec("P")
R = TypeVar("R")

REMOTE = "ray_remote_args"
"""Name of the parameter for options of `remote`."""

FileSystem: TypeAlias = Any
"""A pyarrow or fsspec filesystem."""


# -- signatures


def keywords(
    defaults: Options,
    *,
    changed: Options | None = None,
    without: Collection[str] = (),
    rest: str | None = None,
    known: Collection[str] | Callable[[], Collection[str]] | None = None,
) -> Callable[[F], F]:
    """Return a decorator for a function whose last parameter is `**options`. The function receives
    the options that the caller passed, and those in `changed`.

    The signature shows every keyword. A call with an unknown keyword raises TypeError with the
    nearest name. Errors end at the line of the call, without internal frames.

    Args:
        defaults: Shared keywords with the defaults that the signature shows.
        changed: Defaults of this function that differ.
        without: Names in `defaults` that this function does not take.
        rest: Name of the parameter for further keywords, which belong to another library or to
            `remote` (`REMOTE`); None if there are none.
        known: Names that `rest` accepts, or a function that returns them, which may load their
            library. None for all names; for `REMOTE` the options of `remote`.
    """

    def decorate(function: F) -> F:
        own = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is not parameter.VAR_KEYWORD
        ]
        shared = {
            name: default
            for name, default in {**defaults, **(changed or {})}.items()
            if name not in without
        }
        shown = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in shared.items()
        ]
        if rest is not None:
            shown.append(inspect.Parameter(rest, inspect.Parameter.VAR_KEYWORD))
        named = [*(parameter.name for parameter in own if parameter.name != "self"), *shared]

        def check(name: str) -> None:
            if name in named:
                return
            if rest == REMOTE:
                further, listed = OPTION_NAMES, ["options of `remote`"]
            elif rest is not None and known is None:
                return
            else:
                further = frozenset((known() if callable(known) else known) or ())
                listed = [f"**{rest}"] if callable(known) else sorted(further)
            if name not in further:
                everything = (*named, *further)
                raise unknown_argument(function.__name__, name, everything, shown=(*named, *listed))

        @functools.wraps(function)
        def called(*args: object, **given: object) -> object:
            try:
                for name in given:
                    check(name)
                return function(*args, **{**(changed or {}), **given})
            except Exception as error:
                shorten(error)
                raise

        called.__signature__ = inspect.Signature([*own, *shown])  # type: ignore[attr-defined]
        return called  # type: ignore[return-value]

    return decorate


def short_tracebacks(cls: C) -> C:
    """Drop internal frames from the errors of a class's public methods. A class decorator."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _with_short_traceback(method))
    return cls


def _with_short_traceback(method: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            shorten(error)
            raise

    return called


# -- readers


class ReadOptions(WorkerOptions, total=False):
    """Options of every reader."""

    ray_remote_args: RemoteArgs | None
    """Options of `remote` for the read tasks; options that are passed by name take precedence."""
    override_num_blocks: int | None
    """Number of read tasks; None chooses it from the bytes and the CPUs."""
    parallelism: int
    """Older name of `override_num_blocks`; -1 means None."""
    concurrency: int | None
    """Maximum number of concurrent read tasks; None for no limit."""


class FileOptions(ReadOptions, total=False):
    """Options of readers of files."""

    filesystem: FileSystem | None
    """A pyarrow or fsspec filesystem; None finds it from the first path."""
    arrow_open_stream_args: Arguments | None
    """Arguments of `filesystem.open_input_stream`, for example `{"compression": "gzip"}`."""
    partition_filter: PathPartitionFilter | None
    """Selects the files to read."""
    partitioning: Partitioning | None
    """Columns that are encoded in the paths."""
    include_paths: bool
    """Add the column `path`."""
    ignore_missing_paths: bool
    """Leave out paths that do not exist."""
    shuffle: Literal["files"] | FileShuffleConfig | None
    """Read the files in random order, a new one in each epoch."""
    file_extensions: list[str] | None
    """Extensions of the files to read; None for all files."""


READ: ReadOptions = {
    **WORKER,
    "ray_remote_args": None,
    "override_num_blocks": None,
    "parallelism": -1,
    "concurrency": None,
}
"""Defaults of `ReadOptions`."""
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
"""Defaults of `FileOptions`."""


def read_resources(options: Options) -> Resources:
    """Return the resources of read tasks: `ray_remote_args`, overridden by options that are passed
    by name. Raise the errors of `remote`.
    """
    named = {name: options[name] for name in WORKER if options.get(name) is not None}
    return checked_resources({**(options.get("ray_remote_args") or {}), **named})


def num_blocks_of(override_num_blocks: int | None, parallelism: int | None = -1) -> int | None:
    """Return the number of blocks, passed by either name; None if neither is set."""
    if override_num_blocks is not None:
        return checks.count("override_num_blocks", override_num_blocks, least=1)
    if parallelism in (-1, None):
        return None
    return checks.count("parallelism", parallelism, least=1)


def source_arguments(options: Options) -> Arguments:
    """Return the arguments of a file source, under its parameter names."""
    return _file_arguments(options, FileOptions, ReadOptions)


def further(options: Options, shared: Options) -> Arguments:
    """Return the options that are not among the shared ones; they belong to another library."""
    return {name: value for name, value in options.items() if name not in shared}


# -- writers


def refuse_catalog(catalog: object, instead: str) -> None:
    """Raise ValueError for a catalog of Ray Data, which no function supports.

    Args:
        catalog: The argument.
        instead: Argument that replaces it.
    """
    if catalog is not None:
        raise ValueError(f"catalog=… is not offered: pass {instead}")


class WriteOptions(TypedDict, total=False):
    """Options of every writer."""

    ray_remote_args: RemoteArgs | None
    """Options of `remote` for the write tasks."""
    concurrency: int | None
    """Maximum number of concurrent write tasks; None for no limit."""


class FileWriteOptions(WriteOptions, total=False):
    """Options of writers of files."""

    filesystem: FileSystem | None
    """A pyarrow or fsspec filesystem; None finds it from the path."""
    try_create_dir: bool
    """Create the directory if it does not exist."""
    arrow_open_stream_args: Arguments | None
    """Arguments of `filesystem.open_output_stream`, for example `{"compression": "gzip"}`."""
    filename_provider: FilenameProvider | None
    """Names the files."""
    mode: SaveMode | str
    """How to treat a target that exists."""


class BlockFileWriteOptions(FileWriteOptions, total=False):
    """Options of writers that put several rows into a file."""

    min_rows_per_file: int | None
    """Minimum rows of every file except the last; None for the rows of a block."""
    num_rows_per_file: int | None
    """Older name of `min_rows_per_file`."""


WRITE: WriteOptions = {"ray_remote_args": None, "concurrency": None}
"""Defaults of `WriteOptions`."""
FILES_WRITE: FileWriteOptions = {
    **WRITE,
    "filesystem": None,
    "try_create_dir": True,
    "arrow_open_stream_args": None,
    "filename_provider": None,
    "mode": SaveMode.APPEND,
}
"""Defaults of `FileWriteOptions`."""
BLOCK_FILES_WRITE: BlockFileWriteOptions = {
    **FILES_WRITE,
    "min_rows_per_file": None,
    "num_rows_per_file": None,
}
"""Defaults of `BlockFileWriteOptions`."""


def sink_arguments(options: Options) -> Arguments:
    """Return the arguments of a file sink, under its parameter names. Raise ValueError if the rows
    per file are passed by both names.
    """
    arguments = _file_arguments(options, BlockFileWriteOptions, WriteOptions)
    older = arguments.pop("num_rows_per_file", None)
    if older is not None:
        if arguments.get("min_rows_per_file") is not None:
            raise ValueError(
                "num_rows_per_file is the older name of min_rows_per_file: "
                "pass only min_rows_per_file"
            )
        arguments["min_rows_per_file"] = older
    return arguments


def _file_arguments(options: Options, of_files: type, of_tasks: type) -> Arguments:
    arguments = {
        name: options[name]
        for name in of_files.__annotations__
        if name in options and name not in of_tasks.__annotations__
    }
    if "arrow_open_stream_args" in arguments:
        arguments["open_stream_args"] = arguments.pop("arrow_open_stream_args")
    return arguments
