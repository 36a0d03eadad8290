"""Reading the result of a query through any DB-API connection: in one task, or in shards by a hash
of key columns.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.io.sources.datasource import BlockMetadata, Datasource, ReadTask, digest

if TYPE_CHECKING:
    from syncline.data.context import DataContext

logger = logging.getLogger(__name__)

Connection: TypeAlias = Any
"""A connection as PEP 249 describes it."""
Cursor: TypeAlias = Any

_ROWS_PER_FETCH = 16384
_ROWS_PER_TASK = 50


class SQLDatasource(Datasource):
    """Reads the rows of a query.

    Args:
        sql: The query. connection_factory: Opens a connection; called by each task. shard_hash_fn:
        Function of the database that turns the key into a number ("MD5" where that gives one).
        shard_keys: Columns whose hash decides which task reads a row; None for one task.
        sql_params: Parameters of the query, as the database's `execute` takes them.

    A database that cannot compute MOD, ABS and the hash reads in one task, which the log says.
    """

    def __init__(
        self,
        sql: str,
        connection_factory: Callable[[], Connection],
        shard_hash_fn: str = "MD5",
        shard_keys: Sequence[str] | None = None,
        sql_params: Any = None,
    ) -> None:
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
        """One task, or one for each shard."""
        shards = self._shards(parallelism)
        queries = (
            [self.sql]
            if shards == 1
            else [
                f"SELECT * FROM ({self.sql}) AS t WHERE {self._shard(shards)} = {n}"
                for n in range(shards)
            ]
        )
        return [
            ReadTask(
                functools.partial(read_query, query, self.connection_factory, self.sql_params),
                BlockMetadata(None, None),
                None,
                per_task_row_limit,
                fragment=f"shard {number} of {shards}",
            )
            for number, query in enumerate(queries)
        ]

    def supports_sharding(self, parallelism: int) -> bool:
        """Whether the database computes the expression that deals rows to shards."""
        if parallelism <= 1 or not self.shard_keys:
            return False
        try:
            self._one_value(
                f"SELECT COUNT(1) FROM ({self.sql}) AS t WHERE {self._shard(parallelism)} = 0"
            )
        except Exception as error:  # each database has errors of its own
            logger.info(
                "The query is read in one task, since the database does not compute %s (%s)",
                self._shard(parallelism),
                error,
            )
            return False
        return True

    def identity(self) -> str:
        """Of the query: whether the tables behind it have changed cannot be seen."""
        return digest("SQL", self.sql, self.sql_params, self.shard_keys, self.shard_hash_fn)

    def _shards(self, parallelism: int) -> int:
        if not self.supports_sharding(parallelism):
            return 1
        rows = self._one_value(f"SELECT COUNT(*) FROM ({self.sql}) AS t")
        return max(1, min(parallelism, -(-rows // _ROWS_PER_TASK)))

    def _shard(self, shards: int) -> str:
        key = (
            self.shard_keys[0]
            if len(self.shard_keys) == 1
            else f"CONCAT({','.join(self.shard_keys)})"
        )
        return f"MOD(ABS({self.shard_hash_fn}({key})), {shards})"

    def _one_value(self, query: str) -> int:
        with connected(self.connection_factory) as cursor:
            _execute(cursor, query, self.sql_params)
            return int(cursor.fetchone()[0])


def read_query(
    query: str, connection_factory: Callable[[], Connection], params: Any
) -> Iterator[pa.Table]:
    """Tables of a query's rows; one without rows first, for the names of its columns."""
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
    """A cursor on a new connection: committed at the end of the block, rolled back if it fails, and
    closed.

    TypeError if the factory returns no DB-API connection.
    """
    connection = connection_factory()
    missing = [name for name in ("cursor", "commit", "close") if not hasattr(connection, name)]
    if missing:
        raise TypeError(
            f"connection_factory returned {type(connection).__name__}, which has no {', '.join(missing)}: "
            "it must open a connection as PEP 249 describes it, like sqlite3.connect"
        )
    try:
        yield connection.cursor()
        connection.commit()
    except BaseException:
        # Databases without transactions have no rollback, or one that says so.
        try:
            connection.rollback()
        except Exception as error:
            logger.debug("No rollback: %s", error)
        raise
    finally:
        connection.close()


def _execute(cursor: Cursor, query: str, params: Any) -> None:
    try:
        if params is None:
            cursor.execute(query)
        else:
            cursor.execute(query, params)
    except Exception as error:
        raise error.with_traceback(
            None
        )  # the database says what is wrong with the query; how it came there says nothing
