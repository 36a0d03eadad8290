"""Insert rows into MongoDB collections with pymongo. A job that is started again inserts its rows
again, except rows with an `_id` that exists, which raise an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as block_functions
from syncline.data.io.sinks.datasink import Datasink, TaskContext
from syncline.data.io.sources import mongo
from syncline.data.io.sources.mongo import INSTALL
from syncline.optional import load

_ROWS_PER_CALL = 1024


class MongoDatasink(Datasink[None]):
    """Inserts a document for each row; arguments as in `Dataset.write_mongo`."""

    def __init__(self, uri: str, database: str, collection: str) -> None:
        load("pymongo", purpose="write_mongo", install=INSTALL)
        self.uri = uri
        self.database = database
        self.collection = collection

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Raise ValueError if the database or the collection does not exist."""
        with mongo.connected(self.uri) as client:
            mongo.require_collection(client, self.database, self.collection)

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> None:
        """Insert the rows in their order. Arrays become lists."""
        errors = load("pymongo.errors", purpose="write_mongo", install=INSTALL)
        rows = (row for block in blocks for row in block_functions.rows(block))
        with mongo.connected(self.uri) as client:
            collection = client[self.database][self.collection]
            while documents := [
                {name: _storable(value) for name, value in row.items()}
                for row in islice(rows, _ROWS_PER_CALL)
            ]:
                try:
                    collection.insert_many(documents)
                except errors.BulkWriteError as error:
                    failures = error.details["writeErrors"]
                    raise ValueError(
                        f"MongoDB rejected a row for {self.database}.{self.collection}: "
                        f"{failures[0]['errmsg']}"
                    ) from error


def _storable(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
