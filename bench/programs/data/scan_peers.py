"""The same scan by plain pyarrow and by Daft; batches end where those of the reader do."""

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
    """Record batches as dicts of tensors of at most `BATCH_ROWS` rows."""
    for batch in batches:
        # The arrays are read-only, which torch does not know: a copy, as for all others.
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
