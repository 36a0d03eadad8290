"""Scan of 1 GB in 26 columns: a filter that keeps a quarter of the rows, nine columns, torch
batches; with syncline and Ray Data.

Rows per second count the rows in the files. The second of two passes is measured.
"""

import importlib

from bench.inputs import SCAN_ROWS, scaled
from bench.programs import common
from bench.programs.data import pipelines

BATCH_ROWS = 16_384
COLUMNS = ("id", *(f"f{index:02}" for index in range(8)))
KEPT_GROUPS = 25

if __name__ == "__main__":
    options = common.arguments()
    core, data = pipelines.start(options.library)
    col = importlib.import_module(f"{options.library}.data.expressions").col
    dataset = (
        data.read_parquet(str(pipelines.input_folder()))
        .filter(expr=col("group") < KEPT_GROUPS)
        .select_columns(list(COLUMNS))
    )
    values = pipelines.two_epochs(lambda: dataset.iter_torch_batches(batch_size=BATCH_ROWS), "id")
    common.write(
        options.out,
        {**values, "rows_per_s": values["rows_per_s"] * scaled(SCAN_ROWS) / values["rows"]},
    )
    core.shutdown()
