"""The same scan with pyarrow and with Daft; batches end with those of the reader."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import torch

from bench.inputs import SCAN_ROWS, scaled
from bench.programs import common
from bench.programs.data import pipelines
from bench.programs.data.scan import BATCH_ROWS, COLUMNS, KEPT_GROUPS


def to_torch(batches: Iterable[Any]) -> Iterator[dict[str, torch.Tensor]]:
    """Yield record batches as dicts of tensors with at most `BATCH_ROWS` rows."""
    for batch in batches:
        # Copied as by all other libraries: the arrays are read-only, which torch does not support.
        tensors = {name: torch.from_numpy(batch.column(name).to_numpy().copy()) for name in COLUMNS}
        for begin in range(0, batch.num_rows, BATCH_ROWS):
            yield {name: tensor[begin : begin + BATCH_ROWS] for name, tensor in tensors.items()}


def scan_pyarrow() -> Iterator[dict[str, torch.Tensor]]:
    files = pyarrow.dataset.dataset(str(pipelines.input_folder()), format="parquet")
    return to_torch(
        files.to_batches(columns=list(COLUMNS), filter=pa.compute.field("group") < KEPT_GROUPS)
    )


def scan_daft() -> Iterator[dict[str, torch.Tensor]]:
    import daft

    frame = daft.read_parquet(str(pipelines.input_folder() / "*.parquet"))
    return to_torch(frame.where(daft.col("group") < KEPT_GROUPS).select(*COLUMNS).to_arrow_iter())


if __name__ == "__main__":
    options = common.arguments()
    values = pipelines.two_epochs(
        {"pyarrow": scan_pyarrow, "daft": scan_daft}[options.library], "id"
    )
    common.write(
        options.out,
        {**values, "rows_per_s": values["rows_per_s"] * scaled(SCAN_ROWS) / values["rows"]},
    )
