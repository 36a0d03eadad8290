"""Read MongoDB collections with pymongo: a task for each range of `_id`, whose documents the server
sends in the order of `_id`.

Ids (`ObjectId`) become their 24 hexadecimal digits, decimals become Python's; other BSON types
without an Arrow type become Python objects.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.io import argument_types
from syncline.data.io.sources.datasource import BlockMetadata, Datasource, ReadTask, digest
from syncline.optional import load
from syncline.suggestions import did_you_mean

if TYPE_CHECKING:
    from syncline.data.context import DataContext

Pipeline: TypeAlias = Sequence[Mapping[str, Any]]
"""Stages of a MongoDB aggregation."""

INSTALL = "syncline[mongo]"
_ROWS = 4096
# Stages that work on one document after the other, so that ranges of a collection can be read
# separately.
_BY_DOCUMENT = frozenset(
    {
        "$match",
        "$project",
        "$addFields",
        "$set",
        "$unset",
        "$replaceRoot",
        "$replaceWith",
        "$unwind",
    }
)


class MongoDatasource(Datasource):
    """Reads a collection, or the result of an aggregation of it; arguments as in `read_mongo`."""

    def __init__(
        self,
        uri: str,
        database: str,
        collection: str,
        pipeline: Pipeline | None = None,
        schema: Any = None,
        **mongo_args: Any,
    ) -> None:
        argument_types.require("uri", uri, str, "a connection string, 'mongodb://host:27017'")
        argument_types.require("database", database, str, "the name of a database")
        argument_types.require("collection", collection, str, "the name of a collection")
        if isinstance(pipeline, Mapping):
            raise TypeError(f"pipeline={pipeline!r}: pass a list of stages, [{pipeline!r}]")
        self._uri = uri
        self._database = database
        self._collection = collection
        self._pipeline = [dict(stage) for stage in pipeline or []]
        self._given_schema = None if schema is None else _arrow_schema(schema)
        self._arguments = mongo_args
        with connected(uri) as client:
            require_collection(client, database, collection)

    def schema(self) -> pa.Schema | None:
        """Return the schema given to the constructor, after the projection."""
        return None if self._given_schema is None else self._projected(self._given_schema)

    def supports_projection_pushdown(self) -> bool:
        """True with a schema: the server sends only these fields."""
        return self._given_schema is not None

    def num_rows(self) -> int | None:
        """Return None: other programs may insert documents at any time."""
        return None

    def identity(self) -> str:
        """Return a digest of the collection and the pipeline. Changes of the documents are not
        detected.
        """
        return digest(
            "Mongo",
            self._uri,
            self._database,
            self._collection,
            self._pipeline,
            self._given_schema,
            self._projection,
        )

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return tasks of about equally many documents; one task for pipelines whose stages need
        all documents together, such as `$group` and `$sort`.
        """
        ranges = self._ranges(parallelism) if self._is_by_document() else [None]
        return [
            ReadTask(
                functools.partial(self._read, condition),
                BlockMetadata(None, None),
                self.schema(),
                per_task_row_limit,
            )
            for condition in ranges
        ]

    def _is_by_document(self) -> bool:
        return all(set(stage) <= _BY_DOCUMENT for stage in self._pipeline)

    def _ranges(self, count: int) -> list[Mapping[str, Any] | None]:
        """Return conditions on `_id` that divide the documents. The first and the last one have no
        bound, so that no document is in none of them.
        """
        if count <= 1:
            return [{}]
        first = self._pipeline[:1] if "$match" in (self._pipeline or [{}])[0] else []
        buckets = [*first, {"$bucketAuto": {"groupBy": "$_id", "buckets": count}}]
        with connected(self._uri) as client:
            found = list(
                client[self._database][self._collection].aggregate(buckets, allowDiskUse=True)
            )
        cuts = [bucket["_id"]["min"] for bucket in found[1:]]
        if not cuts or _kind(found[0]["_id"]["min"]) is not _kind(found[-1]["_id"]["max"]):
            return [{}]  # a comparison in MongoDB finds values of one type only
        bounds = [None, *cuts, None]
        return [
            {name: value for name, value in (("$gte", least), ("$lt", below)) if value is not None}
            for least, below in zip(bounds, bounds[1:], strict=False)
        ]

    def _read(self, condition: Mapping[str, Any] | None) -> Iterator[pa.Table]:
        stages: list[Mapping[str, Any]] = [*self._pipeline]
        if condition is not None:
            stages = [
                *([{"$match": {"_id": condition}}] if condition else []),
                {"$sort": {"_id": 1}},
                *stages,
            ]
        schema = self.schema()
        if schema is not None:
            # Excluded by name, since the server returns it otherwise.
            hidden = {} if "_id" in schema.names else {"_id": 0}
            stages.append({"$project": {**dict.fromkeys(schema.names, 1), **hidden}})
        options = {"allowDiskUse": True, **self._arguments}
        with connected(self._uri) as client:
            documents = client[self._database][self._collection].aggregate(stages, **options)
            yield from blocks.from_row_stream(map(_plain, documents), schema, rows_per_block=_ROWS)


def connected(uri: str) -> Any:
    """Return a `pymongo.MongoClient`, which a `with` block closes."""
    pymongo = load("pymongo", purpose="MongoDB", install=INSTALL)
    return pymongo.MongoClient(uri, appname="syncline")


def require_collection(client: Any, database: str, collection: str) -> None:
    """Raise ValueError if the collection does not exist, ConnectionError if no server answers."""
    errors = load("pymongo.errors", purpose="MongoDB", install=INSTALL)
    try:
        databases = client.list_database_names()
    except errors.ServerSelectionTimeoutError as error:
        reason = str(error).split(" (configured timeouts")[0]
        raise ConnectionError(
            f"no MongoDB server answers: {reason}. Check the URI; its option "
            "serverSelectionTimeoutMS sets how long to wait"
        ) from error
    if database not in databases:
        raise ValueError(
            f"there is no MongoDB database {database!r}, only {sorted(databases)}"
            f"{did_you_mean(database, databases)}"
        )
    collections = client[database].list_collection_names()
    if collection not in collections:
        raise ValueError(
            f"the MongoDB database {database!r} has no collection {collection!r}, only "
            f"{sorted(collections)}{did_you_mean(collection, collections)}"
        )


def _arrow_schema(schema: Any) -> pa.Schema:
    """Return the Arrow schema for one of Arrow, of pymongoarrow, or a dict of names and types."""
    if hasattr(schema, "to_arrow"):
        schema = schema.to_arrow()
    return schema if isinstance(schema, pa.Schema) else pa.schema(list(dict(schema).items()))


def _kind(value: object) -> type:
    """Return the type under which MongoDB compares a value."""
    return float if isinstance(value, int | float) else type(value)


def _plain(value: Any) -> Any:
    """Return a BSON value in Python's types."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    kind = type(value).__name__
    if kind == "ObjectId":
        return str(value)
    if kind == "Decimal128":
        return value.to_decimal()
    return value
