"""4 GB created, mapped by a function and read with a budget of 1 GB for object store and execution;
with syncline and Ray Data.
"""

import time

import numpy as np

from bench.inputs import scaled
from bench.programs import common
from bench.programs.data import pipelines

ROWS, ROW_BYTES = 1_000_000, 4096
BUDGET_BYTES = 1024**3


def double(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"data": batch["data"] * 2}


if __name__ == "__main__":
    options = common.arguments()
    core, data = pipelines.start(options.library, BUDGET_BYTES)
    dataset = data.range_tensor(scaled(ROWS), shape=(ROW_BYTES // 8,)).map_batches(
        double, batch_size=1024
    )
    begin = time.perf_counter()
    rows = sum(len(batch["data"]) for batch in dataset.iter_batches(batch_size=1024))
    stream_s = time.perf_counter() - begin
    assert rows == scaled(ROWS), f"{rows} rows instead of {scaled(ROWS)}"
    common.write(options.out, {"stream_s": stream_s, "budget_mb": BUDGET_BYTES / 1e6})
    core.shutdown()
