"""A dataset of two blocks in memory, with the two methods that preprocessors use."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from syncline.data.columnar import block as blocks
from syncline.data.columnar.aggregate import AggregateFn, phases


@dataclass
class FakeDataset:
    """Aggregates as the executor does: block by block, then merged."""

    tables: list[pa.Table]
    passes: list[list[str]] = field(default_factory=list)
    """The names of the aggregators of each pass over the data."""
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the last `map_batches`."""

    def aggregate(self, *aggregates: AggregateFn) -> dict[str, Any]:
        self.passes.append([aggregate.name for aggregate in aggregates])
        partials = [phases.partial(table, [], aggregates) for table in self.tables]
        return next(
            blocks.rows(phases.finalize(phases.merge(partials, [], aggregates), [], aggregates))
        )

    def map_batches(
        self, function: Callable[[Any], Any], *, batch_format: str, **options: Any
    ) -> "FakeDataset":
        results = [
            blocks.from_batch(function(blocks.to_batch(table, batch_format)))
            for table in self.tables
        ]
        return FakeDataset(results, self.passes, options)

    def rows(self) -> list[dict[str, Any]]:
        return list(blocks.rows(blocks.concat(self.tables)))

    def column(self, name: str) -> list[Any]:
        values = [row[name] for row in self.rows()]
        return [value.tolist() if hasattr(value, "tolist") else value for value in values]


@pytest.fixture
def dataset() -> Callable[[Any], Any]:
    """From a DataFrame, a table or a dict of columns to a dataset."""

    def make(data: Any) -> FakeDataset:
        table = (
            blocks.from_batch(data)
            if isinstance(data, pd.DataFrame | pa.Table)
            else blocks.from_batch(dict(data))
        )
        half = (table.num_rows + 1) // 2
        return FakeDataset([table.slice(0, half), table.slice(half)])

    return make
