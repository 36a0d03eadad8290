"""Sum and mean by key of 1 M and 10 M rows, and a sort of 10 M rows, all in memory; with syncline
and Ray Data.

The aggregation of 1 M rows runs twice; the second run counts.
"""

import importlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from bench.inputs import scaled
from bench.programs import common
from bench.programs.data import pipelines

SMALL_ROWS, ROWS = 1_000_000, 10_000_000
KEYS = 10_000
PARTS = 16


def make(rows: int) -> list[pa.Table]:
    """Return random rows in 16 tables: `key`, one of 10 000 integers, and `value`."""
    random = np.random.default_rng(0)
    table = pa.table({"key": random.integers(0, KEYS, rows), "value": random.random(rows)})
    each = -(-rows // PARTS)
    return [table.slice(begin, each) for begin in range(0, rows, each)]


def seconds(run: Callable[[], int], expected: int) -> float:
    """Return the seconds of `run`, which must return the expected number of rows."""
    begin = time.perf_counter()
    rows = run()
    taken = time.perf_counter() - begin
    assert rows == expected, f"{rows} rows instead of {expected}"
    return taken


def keys_in(tables: list[pa.Table]) -> int:
    """Return the number of different keys."""
    return len(np.unique(np.concatenate([table["key"].to_numpy() for table in tables])))


def measure(
    group: Callable[[Any], int], sort: Callable[[Any], int], load: Callable[[list[pa.Table]], Any]
) -> common.Values:
    """Time `group` and `sort`, which return the number of result rows, on the data that `load`
    returns.
    """
    tables = make(scaled(SMALL_ROWS))
    keys, frame = keys_in(tables), load(tables)
    values = {"small_group_s": [seconds(partial(group, frame), keys) for _ in range(2)][-1]}
    tables = make(scaled(ROWS))
    keys, frame = keys_in(tables), load(tables)
    del tables
    return values | {
        "group_s": seconds(partial(group, frame), keys),
        "sort_s": seconds(partial(sort, frame), scaled(ROWS)),
    }


if __name__ == "__main__":
    options = common.arguments()
    core, data = pipelines.start(options.library)
    aggregate = importlib.import_module(f"{options.library}.data.aggregate")

    def group(dataset: Any) -> int:
        result: int = (
            dataset.groupby("key")
            .aggregate(aggregate.Sum("value"), aggregate.Mean("value"))
            .materialize()
            .count()
        )
        return result

    def sort(dataset: Any) -> int:
        result: int = dataset.sort("value").materialize().count()
        return result

    common.write(
        options.out, measure(group, sort, lambda tables: data.from_arrow(tables).materialize())
    )
    core.shutdown()
