"""Write rows through a DB-API connection. Each write task is one transaction; a job that is started
again writes its rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

import pyarrow as pa

from syncline.data.columnar import block as block_functions
from syncline.data.io.sinks.datasink import Datasink, TaskContext
from syncline.data.io.sources.sql import Connection, connected

_ROWS_PER_CALL = 1024


class SQLDatasink(Datasink[None]):
    """Executes one statement for each row; arguments as in `Dataset.write_sql`."""

    def __init__(self, sql: str, connection_factory: Callable[[], Connection]) -> None:
        self.sql = sql
        self.connection_factory = connection_factory

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> None:
        """Write all rows in one transaction, which is rolled back if a row fails."""
        rows = (tuple(row.values()) for block in blocks for row in block_functions.rows(block))
        with connected(self.connection_factory) as cursor:
            while values := list(islice(rows, _ROWS_PER_CALL)):
                try:
                    cursor.executemany(self.sql, values)
                except Exception as error:
                    raise error.with_traceback(None) from None  # the database's message is enough
