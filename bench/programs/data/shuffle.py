"""Random shuffle of 1 GB with a budget of 256 MB for object store and execution; with syncline and
Ray Data.
"""

import time

from bench.inputs import scaled
from bench.programs import common
from bench.programs.data import pipelines

ROWS, ROW_BYTES = 1_000_000, 1024
BUDGET_BYTES = 256 * 1024**2

if __name__ == "__main__":
    options = common.arguments()
    core, data = pipelines.start(options.library, BUDGET_BYTES)
    dataset = data.range_tensor(scaled(ROWS), shape=(ROW_BYTES // 8,))
    begin = time.perf_counter()
    rows, total = 0, 0
    for batch in dataset.random_shuffle(seed=0).iter_batches(batch_size=1024):
        rows += len(batch["data"])
        total += int(batch["data"][:, 0].sum())
    shuffle_s = time.perf_counter() - begin
    assert (rows, total) == (scaled(ROWS), scaled(ROWS) * (scaled(ROWS) - 1) // 2), (
        "the shuffle lost or repeated rows"
    )
    common.write(options.out, {"shuffle_s": shuffle_s, "budget_mb": BUDGET_BYTES / 1e6})
    core.shutdown()
