"""What a dataset is like: schema, count, size, files, statistics. Answers come from metadata where
they can, and are remembered.
"""

from __future__ import annotations

import html

import pyarrow as pa

from syncline.data.columnar.aggregate import Count
from syncline.data.columnar.schema_handle import Schema
from syncline.data.execute import cache
from syncline.data.methods.handle import Handle
from syncline.data.plan import explain, properties
from syncline.data.plan.nodes import Aggregate, Held, Limit


class InspectingMethods(Handle):
    """Methods that answer questions about the dataset."""

    def schema(self, fetch_if_missing: bool = True) -> Schema | None:
        """Names and types of the columns; None for a dataset without columns.

        Args:
            fetch_if_missing: Find out by computing the first row where the plan does not tell.
            Without, None where it is not known.
        """
        known = self._known_schema()
        if known is None and fetch_if_missing:
            known = self._learned.schema = self._schema_of_first_block()
        return None if known is None else Schema(known)

    def columns(self, fetch_if_missing: bool = True) -> list[str] | None:
        """Names of the columns; None where `schema` is None."""
        schema = self.schema(fetch_if_missing)
        return None if schema is None else schema.names

    def count(self) -> int:
        """Number of rows: from metadata where it tells, or else all rows are computed."""
        known = self._known_rows()
        if known is None:
            counted = self._tables(Aggregate(input=self._node, keys=(), aggregates=(Count(),)))
            known = self._learned.num_rows = sum(
                count for table in counted for count in table.column(0).to_pylist()
            )
        return known

    def num_blocks(self) -> int:
        """Only materialized datasets know: NotImplementedError."""
        raise NotImplementedError(
            "how many blocks there will be is decided while they are made: call materialize().num_blocks()"
        )

    def size_bytes(self) -> int:
        """Bytes in memory: about, from metadata, or where that does not tell exactly, after
        computing all rows.
        """
        if self._learned.size_bytes is None:
            known = properties.estimated_bytes(cache.answered(self._node))
            if known is not None:
                return known
            with self._execution() as execution:
                self._learned.size_bytes = sum(block.size_bytes for block in execution)
        return self._learned.size_bytes

    def input_files(self) -> list[str]:
        """Paths of the files that are read, each once."""
        return properties.input_files(self._node)

    def stats(self) -> str:
        """Where the time of the last execution went, operator by operator; empty before the first
        one.
        """
        return "" if self._learned.stats is None else self._learned.stats()

    def explain(self) -> None:
        """Print the plan, as it was written and as it will be executed."""
        print(explain.text(self._node, self._context))

    def __repr__(self) -> str:
        if isinstance(self._node, Held):
            return self._shape()
        return f"{explain.tree(self._node)}\n{self._shape()}"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"

    def _shape(self) -> str:
        """Number of rows and columns with their types, as far as they are known."""
        rows, schema = self._known_rows(), self._known_schema()
        columns = (
            "?"
            if schema is None
            else "{" + ", ".join(f"{field.name}: {field.type}" for field in schema) + "}"
        )
        name = "" if self._name is None else f"name={self._name}, "
        return f"{type(self).__name__}({name}num_rows={'?' if rows is None else rows}, schema={columns})"

    def _known_rows(self) -> int | None:
        return (
            properties.known_rows(cache.answered(self._node))
            if self._learned.num_rows is None
            else self._learned.num_rows
        )

    def _schema_of_first_block(self) -> pa.Schema | None:
        schema = None
        for table in self._tables(Limit(input=self._node, limit=1)):
            if schema is None or table.num_rows:
                schema = table.schema
        return schema
