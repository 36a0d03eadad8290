"""Read the result of a query through a DB-API connection: in one task, or in shards by ranges of a
column of integers or by a hash of key columns.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.io import argument_types
from syncline.data.io.sources.datasource import BlockMetadata, Datasource, ReadTask, digest

if TYPE_CHECKING:
    from syncline.data.context import DataContext

logger = logging.getLogger(__name__)

Connection: TypeAlias = Any
"""A connection as PEP 249 defines it."""
Cursor: TypeAlias = Any
"""A cursor as PEP 249 defines it."""

_ROWS_PER_FETCH = 16384
_ROWS_PER_TASK = 50


class SQLDatasource(Datasource):
    """Reads the rows of a query; arguments as in `read_sql`.

    A key column of integers is divided into ranges, which every database can compute, and from an
    index where there is one. For other keys the database must compute MOD, ABS and the hash;
    otherwise the query is read in one task, which is logged.
    """

    def __init__(
        self,
        sql: str,
        connection_factory: Callable[[], Connection],
        shard_hash_fn: str = "MD5",
        shard_keys: Sequence[str] | None = None,
        sql_params: object = None,
    ) -> None:
        argument_types.require("sql", sql, str, "the text of a query")
        if not callable(connection_factory):
            raise TypeError(
                f"connection_factory={connection_factory!r}: pass a function without arguments "
                "that returns a connection"
            )
        self.sql = sql.strip().rstrip(";")
        self.connection_factory = connection_factory
        self.shard_hash_fn = shard_hash_fn
        self.shard_keys = list(shard_keys or [])
        self.sql_params = sql_params

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return one task, or one for each shard."""
        conditions = self._conditions(parallelism)
        query = f"SELECT * FROM ({self.sql}) AS t WHERE"
        queries = [f"{query} {each}" for each in conditions] or [self.sql]
        return [
            ReadTask(
                functools.partial(read_query, query, self.connection_factory, self.sql_params),
                BlockMetadata(None, None),
                None,
                per_task_row_limit,
            )
            for query in queries
        ]

    def supports_sharding(self, parallelism: int) -> bool:
        """Return True if the database can compute the shard of a row."""
        if parallelism <= 1 or not self.shard_keys:
            return False
        shard = self._shard_of_row(parallelism)
        try:
            self._fetch_int(f"SELECT COUNT(1) FROM ({self.sql}) AS t WHERE {shard} = 0")
        except Exception as error:  # each database has its own errors
            logger.info(
                "Reading the query in one task: the database cannot compute %s (%s)", shard, error
            )
            return False
        return True

    def identity(self) -> str:
        """Return a digest of the query. Changes of the tables are not detected."""
        return digest("SQL", self.sql, self.sql_params, self.shard_keys, self.shard_hash_fn)

    def _conditions(self, parallelism: int) -> list[str]:
        """Return the conditions of the shards; none for one task."""
        if parallelism <= 1 or not self.shard_keys:
            return []
        ranges = self._ranges(parallelism)
        if ranges is not None:
            return ranges
        shards = self._num_shards(parallelism)
        hashed = self._shard_of_row(shards)
        return [] if shards == 1 else [f"{hashed} = {number}" for number in range(shards)]

    def _ranges(self, parallelism: int) -> list[str] | None:
        """Return conditions for ranges of the key; None if it is not one column of integers.

        The first range has the rows without a key. The first and the last one have no bound, so
        that a row that is inserted meanwhile is in one of them.
        """
        if len(self.shard_keys) != 1:
            return None
        (key,) = self.shard_keys
        try:
            rows, least, most = self._fetch(
                f"SELECT COUNT(*), MIN({key}), MAX({key}) FROM ({self.sql}) AS t"
            )
        except Exception as error:  # some databases have no MIN of a UUID or of a boolean
            logger.info("No ranges of %s, since the database has no MIN of it (%s)", key, error)
            return None
        if not all(isinstance(bound, int) for bound in (least, most)):
            return None
        shards = max(1, min(parallelism, -(-rows // _ROWS_PER_TASK), most - least + 1))
        if shards == 1:
            return []
        cuts = [least + (most - least + 1) * index // shards for index in range(1, shards)]
        between = [
            f"{key} >= {start} AND {key} < {end}"
            for start, end in zip(cuts, cuts[1:], strict=False)
        ]
        return [f"({key} < {cuts[0]} OR {key} IS NULL)", *between, f"{key} >= {cuts[-1]}"]

    def _num_shards(self, parallelism: int) -> int:
        if not self.supports_sharding(parallelism):
            return 1
        rows = self._fetch_int(f"SELECT COUNT(*) FROM ({self.sql}) AS t")
        return max(1, min(parallelism, -(-rows // _ROWS_PER_TASK)))

    def _shard_of_row(self, shards: int) -> str:
        keys = self.shard_keys
        key = keys[0] if len(keys) == 1 else f"CONCAT({','.join(keys)})"
        return f"MOD(ABS({self.shard_hash_fn}({key})), {shards})"

    def _fetch_int(self, query: str) -> int:
        return int(self._fetch(query)[0])

    def _fetch(self, query: str) -> tuple[Any, ...]:
        with connected(self.connection_factory) as cursor:
            _execute(cursor, query, self.sql_params)
            return tuple(cursor.fetchone())


def read_query(
    query: str, connection_factory: Callable[[], Connection], params: object
) -> Iterator[pa.Table]:
    """Yield the rows of a query; first an empty table, for the column names."""
    with connected(connection_factory) as cursor:
        _execute(cursor, query, params)
        names = [column[0] for column in cursor.description]
        yield pa.table({name: pa.nulls(0) for name in names})
        first = 0
        while rows := cursor.fetchmany(_ROWS_PER_FETCH):
            yield blocks.from_rows(
                [dict(zip(names, row, strict=True)) for row in rows], first_row=first
            )
            first += len(rows)


@contextmanager
def connected(connection_factory: Callable[[], Connection]) -> Iterator[Cursor]:
    """Open a connection and yield a cursor; commit at the end of the block, roll back if it fails,
    and close.

    Raises TypeError if the factory returns no DB-API connection.
    """
    connection = connection_factory()
    missing = [name for name in ("cursor", "commit", "close") if not hasattr(connection, name)]
    if missing:
        raise TypeError(
            f"connection_factory returned {type(connection).__name__}, which has no "
            f"{', '.join(missing)}: it must open a connection as PEP 249 defines it, like "
            "sqlite3.connect"
        )
    try:
        yield connection.cursor()
        connection.commit()
    except BaseException:
        # Databases without transactions have no rollback, or raise an error.
        try:
            connection.rollback()
        except Exception as error:
            logger.debug("No rollback: %s", error)
        raise
    finally:
        connection.close()


def _execute(cursor: Cursor, query: str, params: object) -> None:
    try:
        if params is None:
            cursor.execute(query)
        else:
            cursor.execute(query, params)
    except Exception as error:
        raise error.with_traceback(None) from None  # the database's message is enough
