"""Datasets that are read when they are needed: from any `Datasource`, numbers, queries, Lance.
Files: `read_files`.

Everything here is lazy: the call finds out what there is to read and checks the arguments; rows are
read by executions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syncline.data.dataset import Dataset
from syncline.data.io.sources.datasource import Datasource
from syncline.data.io.sources.lance import LanceDatasource
from syncline.data.io.sources.range import RangeDatasource
from syncline.data.io.sources.sql import Connection, SQLDatasource
from syncline.data.keywords import keywords
from syncline.data.options import (
    READ,
    ReadOptions,
    at_least_one,
    num_blocks_of,
    resources_of,
    rest_of,
)
from syncline.data.plan.compute import ActorPoolStrategy, ComputeStrategy, TaskPoolStrategy
from syncline.data.plan.nodes import Read

if TYPE_CHECKING:
    from typing_extensions import Unpack


def read(source: Datasource, options: Mapping[str, Any]) -> Dataset:
    """The dataset of a source, with the keywords of `ReadOptions`; others are not looked at."""
    concurrency = options.get("concurrency")
    node = Read(
        source=source,
        parallelism=num_blocks_of(options.get("override_num_blocks"), options.get("parallelism")),
        concurrency=None if concurrency is None else at_least_one("concurrency", concurrency),
        resources=resources_of(options),
    )
    return Dataset(node)


@keywords(READ, rest="read_args")
def read_datasource(
    datasource: Datasource,
    *,
    compute: ComputeStrategy | None = None,
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Rows of a source of the program's own.

    Args:
        datasource: The source. compute: How many tasks at once: a `TaskPoolStrategy`, or an
        `ActorPoolStrategy` whose largest size counts; `concurrency` counts
            more.
        options: See `ReadOptions`. Further ones go to `datasource.create_reader`, of sources that
        have one.

    Raises:
        TypeError: No `Datasource`, or a keyword that nobody takes.
    """
    further = rest_of(options, READ)
    create_reader = getattr(datasource, "create_reader", None)
    if callable(create_reader):
        datasource = create_reader(**further)
    elif further:
        raise TypeError(
            f"read_datasource got {sorted(further)}, but {type(datasource).__name__} has no create_reader that would take them: "
            "give them to its constructor"
        )
    if not isinstance(datasource, Datasource):
        raise TypeError(
            f"read_datasource takes a Datasource, not {type(datasource).__name__}: subclass syncline.data.Datasource"
        )
    chosen: dict[str, Any] = dict(options)
    if compute is not None and chosen.get("concurrency") is None:
        chosen["concurrency"] = _most_at_once(compute)
    return read(datasource, chosen)


def _most_at_once(compute: ComputeStrategy) -> int | None:
    if isinstance(compute, TaskPoolStrategy):
        return compute.size
    if isinstance(compute, ActorPoolStrategy):
        return compute.max_size
    raise TypeError(
        f"compute={compute!r} is no way to read: give a TaskPoolStrategy or an ActorPoolStrategy"
    )


def range(
    n: int,
    *,
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """The numbers 0 to n-1, in the column `id`.

    Args:
        n: Number of rows.
        parallelism: Older name of `override_num_blocks`; -1 is None.
        concurrency: The most read tasks at once; None for as many as there is room for.
        override_num_blocks: Number of blocks; None lets the executor choose.
    """
    options = {
        "parallelism": parallelism,
        "concurrency": concurrency,
        "override_num_blocks": override_num_blocks,
    }
    return read(RangeDatasource(n), options)


def range_tensor(
    n: int,
    *,
    shape: Sequence[int] = (1,),
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """Tensors that are filled with 0 to n-1, in the column `data`. Arguments as those of `range`.

    Args:
        shape: Shape of each tensor.
    """
    options = {
        "parallelism": parallelism,
        "concurrency": concurrency,
        "override_num_blocks": override_num_blocks,
    }
    return read(RangeDatasource(n, block_format="tensor", tensor_shape=shape), options)


@keywords(READ)
def read_sql(
    sql: str,
    connection_factory: Callable[[], Connection],
    *,
    sql_params: Sequence[Any] | Mapping[str, Any] | None = None,
    shard_keys: list[str] | None = None,
    shard_hash_fn: str = "MD5",
    **options: Unpack[ReadOptions],
) -> Dataset:
    """The rows of a query, through any connection as PEP 249 describes it.

    Args:
        sql: The query.
        connection_factory: Opens a connection; called by each task.
        sql_params: Parameters of the query, as the database's `execute` takes them.
        shard_keys: Columns whose hash decides which task reads a row; None for one task.
        shard_hash_fn: Function of the database that turns the key into a number.
        options: See `ReadOptions`.
    """
    return read(
        SQLDatasource(sql, connection_factory, shard_hash_fn, shard_keys, sql_params), options
    )


@keywords(READ, without=("parallelism",))
def read_lance(
    uri: str | list[str],
    *,
    version: int | str | None = None,
    columns: list[str] | None = None,
    filter: str | None = None,
    storage_options: dict[str, str] | None = None,
    scanner_options: dict[str, Any] | None = None,
    **options: Unpack[ReadOptions],
) -> Dataset:
    """The rows of Lance datasets.

    Args:
        uri: Path or URI, or several.
        version: Number or tag of the version; the newest if None.
        columns: Names of the columns to read; None for all.
        filter: A condition in SQL.
        storage_options: For the object store.
        scanner_options: For Lance's scanner.
        options: See `ReadOptions`.

    Raises:
        ImportError: Lance is not installed.
        ValueError: There is no such dataset or version.
    """
    return read(
        LanceDatasource(uri, version, columns, filter, storage_options, scanner_options), options
    )
