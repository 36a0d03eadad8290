"""The same aggregation and sort with pandas and with Daft."""

from typing import Any

import pyarrow as pa

from bench.programs import common
from bench.programs.data import tables


def measure_pandas() -> common.Values:
    return tables.measure(
        group=lambda frame: len(frame.groupby("key").agg({"value": ["sum", "mean"]})),
        sort=lambda frame: len(frame.sort_values("value")),
        load=lambda parts: pa.concat_tables(parts).to_pandas(),
    )


def measure_daft() -> common.Values:
    import daft

    value = daft.col("value")

    def group(frame: Any) -> int:
        return len(
            frame.groupby("key").agg(value.sum().alias("sum"), value.mean().alias("mean")).collect()
        )

    return tables.measure(
        group=group,
        sort=lambda frame: len(frame.sort("value").collect()),
        load=lambda parts: daft.from_arrow(parts).collect(),
    )


if __name__ == "__main__":
    options = common.arguments()
    common.write(options.out, {"pandas": measure_pandas, "daft": measure_daft}[options.library]())
